"""Is what rescaled_count.py has counted right? Counts the same events again, as a batch of Spark's own.

python recount.py CHECKPOINT     after the query was stopped
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import megaphone

checkpoint = Path(sys.argv[1])
last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
offsets = (checkpoint / "offsets" / str(last)).read_text().splitlines()
events = next(json.loads(line)["event"] for line in offsets if '"event"' in line)

builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
spark = megaphone.tuned(builder).getOrCreate()
kept = {int(row.key): int(row.state) for row in megaphone.read_state(spark, str(checkpoint)).collect()}
bids = spark.read.format("nexmark").options(kind="bid", rate=5000, events=events).load()
counted = {row.auction: row["count"] for row in bids.groupBy("auction").count().collect()}

wrong = {auction for auction, _ in kept.items() ^ counted.items()}
print(f"{events:,} events, {sum(counted.values()):,} bids, {len(counted):,} auctions, {len(wrong):,} of them wrong")
spark.stop()
