"""The harness: load on a fixed schedule, latency from when a record was due, timelines and reports."""
