"""`make chaos`: break a running query in every way and place we know, and count what is lost or doubled."""
