"""The same counts as in plain_count.py, with state that moves while the query runs: where docs/tutorial.md ends.

python rescaled_count.py CHECKPOINT [SECONDS]
"""

import sys

from pyspark.sql import SparkSession

import megaphone

checkpoint, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else None


def count(time, bids, counts, notificator):
    """Take an epoch's bids of a bin; give the new count of every auction among them."""
    for bid in bids:
        counts[bid.auction] = counts.get(bid.auction, 0) + 1
    return [(auction, counts[auction]) for auction in {bid.auction for bid in bids}]


spark = megaphone.tuned(SparkSession.builder.master("local[2]")).getOrCreate()
bids = spark.readStream.format("nexmark").options(kind="bid", rate=5000).load().select("auction")

control = megaphone.Control(spark, workers=2, bins=64)
counts = megaphone.unary(control, bids, "auction", count, "auction long, count long")

writer = counts.writeStream.queryName("bids").format("console").option("numRows", 3)
query = writer.option("checkpointLocation", checkpoint).start()
query.awaitTermination(seconds)
query.stop()
