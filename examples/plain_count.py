"""How many bids each auction has got, with Spark's own operators: where docs/tutorial.md begins.

python plain_count.py CHECKPOINT [SECONDS]
"""

import sys

from pyspark.sql import SparkSession

checkpoint, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else None

spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
bids = spark.readStream.format("nexmark").options(kind="bid", rate=5000).load().select("auction")

counts = bids.groupBy("auction").count()

writer = counts.writeStream.queryName("bids").outputMode("update").format("console").option("numRows", 3)
query = writer.option("checkpointLocation", checkpoint).start()
query.awaitTermination(seconds)
query.stop()
