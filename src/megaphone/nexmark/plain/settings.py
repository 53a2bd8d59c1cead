"""The session that a tuned job of Spark's own operators would run in, on two cores.

What makes an epoch short helps both, so it is what `megaphone.tuned` sets whatever the master is; the rest is for
Spark's state stores.
Neighbours: engine/spark/session.py.
"""

from megaphone.engine.spark.session import SETTINGS

CONF = {
    **SETTINGS,
    # A task, and a state store, for each core.
    "spark.sql.shuffle.partitions": "2",
    # `transformWithState` needs it.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Write down what changed, not the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To count rows, RocksDB would look up every key that is written.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Joins: one store instead of four, and what is to be dropped is found without a scan.
    "spark.sql.streaming.join.stateFormatVersion": "4",
}
"""For a whole session; what is not Spark SQL's must be said before it begins."""

IN_MEMORY = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.join.stateFormatVersion": "2",
}
"""Over `CONF`, for queries without `transformWithState`: Spark's default store, which keeps all state in the heap. Q5
is faster with it, as long as the state fits; the joins are not."""
