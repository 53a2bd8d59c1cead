"""The query that runs on several hosts: that of the fault suite, which can also tell who is where, and drain a host.

    python -m megaphone.harness.hosts.job FOLDER MASTER [NAME=VALUE ...]

Neighbours: stage.py starts it on its host; chaos/job.py is the query, chaos/verdict.py knows what must come out.
"""

from typing import Any

from megaphone.harness.chaos.job import Job, main


class HostsJob(Job):
    """More workers than hosts, and not a multiple of them."""

    workers = 4

    def status(self) -> dict[str, Any]:
        """How it is, and who is where."""
        found = self._control.status()
        workers = [
            {"worker": int(worker.worker), "host": worker.host, "pid": worker.pid, "bins": worker.bins}
            for status in found
            for worker in status.workers
        ]
        return {**super().status(), "workers": workers, "executors": self._executors()}

    def drain(self, host: str) -> dict[str, Any]:
        """Move every bin off a host, to the workers of the others."""
        return {"steps": len(self._control.drain(host, "fluid").plan.steps)}

    def balance(self) -> dict[str, Any]:
        """Use every worker again."""
        return {"steps": len(self._control.rebalance().plan.steps)}

    def grow(self, workers: int) -> dict[str, Any]:
        """Go on with more workers."""
        self.workers = workers
        return {"steps": len(self._control.rescale(workers).plan.steps)}

    def _executors(self) -> list[str]:
        """The hosts on which Spark has executors that can be given tasks."""
        spark = self._control.spark.sparkContext
        there = str(spark._jsc.sc().getExecutorMemoryStatus().keySet().mkString(","))
        hosts = {address.rsplit(":", 1)[0] for address in there.split(",")}
        return sorted(hosts - {spark.getConf().get("spark.driver.host")})


if __name__ == "__main__":
    main(HostsJob)
