"""What survives a crash: plans, input logs and bin snapshots under the query's checkpoint location."""
