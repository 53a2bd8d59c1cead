"""`make soak`: minutes of migrations and kills on one query, and what has grown when they are over."""
