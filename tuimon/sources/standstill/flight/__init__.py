"""What torch's flight recorder has of the ranks' collectives, for a training that stands still.

torch keeps the latest collectives of each rank in a ring in memory (``TORCH_FR_BUFFER_SIZE``, formerly
``TORCH_NCCL_TRACE_BUFFER_SIZE``: 2,000 of them unless it is set) and writes them to a file, by its own thread: when a
collective has timed out, and at once where a byte is written into the pipe that ``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``
names. The file, ``<TORCH_FR_DUMP_TEMP_FILE><rank>``, holds a pickled dict of plain values (versions 2.x; torch's own
reader: ``torch/distributed/flight_recorder``)::

    {"version": "2.10",
     "pg_config": {name: {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
     "pg_status": {id: {"last_enqueued_collective": 4, "last_completed_collective": 3, ...}},
     "entries": [{"process_group": ("0", "default_pg"), "collective_seq_id": 4, "profiling_name": "nccl:all_reduce",
                  "state": "scheduled" | "started" | "completed", "retired": False, "is_p2p": False, ...}]}

Gloo's entries stay "scheduled": ``retired`` marks those that are over.
"""
