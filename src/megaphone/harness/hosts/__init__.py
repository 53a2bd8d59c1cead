"""`make cluster-test`: Spark on several hosts of one machine, one drained, one cut off; counts what is lost."""
