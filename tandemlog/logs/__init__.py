"""Work on whole logs: folders of segment files, or a node that is asked for them.

reading    the bytes of a log, its records, where it ends
audit      what a span holds, what is damaged, whether two logs agree
tasks      one part of a job: a span audited, a queue written, a Parquet file
jobs       audit, compare, rebuild, restore, export, stats: tasks, and what comes of them
executors  where the tasks run: one after the other here, or spread by Spark

Nothing here needs pyspark; `tandemlog.spark` is one way to spread the tasks over machines.
"""
