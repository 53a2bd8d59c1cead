"""`megaphone nexmark`: one of NEXMark's queries on this machine, while its state moves.

    arguments      what a user says, checked
    questions      what each query asks
    versions       the query as it is to be built: migrateable, native, or Spark's own
    job            the running query, and the migrations it is told to do
    course         what is known of it: epochs, frontier, memory
    progress       that in a line, while it runs
    interruption   Ctrl-C, without haste
    summary        how it was, in figures
    page, picture  the same in text, and drawn
    command        all of this, one after the other

From: cli.py.  Paper: the evaluation, NEXMark.
"""
