"""The harness: load on a fixed schedule, latency from when a record was due, experiments and their results.

schedule, source, words      when records are due, and what they are
latency, timeline, observe   due to done, one sample per record
sampling                     memory of every process, bytes moved
counting, today              what is measured: the paper's counts, and Spark's own ways
trial, saturation            a query under load; a query with all it can take
recipe, experiment, results  which runs, what they found, which ratios they answer for
report, page                 pictures, and the evaluation's page
stage, bench, quiet          `megaphone bench`
demo, chaos, hosts, soak     `make demo`, `make chaos`, `make cluster-test`, `make soak`
"""
