"""All nodes on one page."""

from __future__ import annotations

from dashboard import DATA_SOURCE, NEVER, OF_JOB, PART_FULL, Board, Panel, stat

# One row at least, so that a table that says nothing is told from one that has no data.
NOT_WELL = " or ".join(
    [
        'max by (instance, state) (label_replace(up{job="tierd"} == 0, "state", "down", "", ""))',
        'max by (instance, state, cause) (label_replace(tierd_degraded == 1, "state", "degraded", "", ""))',
        'max by (instance, state) (label_replace(tierd_draining == 1, "state", "draining", "", ""))',
        'on () label_replace(vector(1), "state", "all are well", "", "")',
    ]
)

BOARD = Board(
    "tierd-fleet",
    "tierd: fleet",
    "All nodes: which are well, which are full, and which jobs wait.",
    [DATA_SOURCE],
    {
        "Are they well": [
            stat("Nodes", "Nodes whose tierd answers.", "count(tierd_build_info)"),
            stat(
                "Down",
                "Nodes whose tierd does not answer.",
                'count(up{job="tierd"} == 0) or vector(0)',
                thresholds=NEVER,
            ),
            stat(
                "Draining",
                "Nodes that take no new job.",
                "sum(tierd_draining)",
                thresholds=((None, "green"), (1, "yellow")),
            ),
            stat(
                "Degraded",
                "Nodes that do less than they were set up for.",
                "count(sum by (instance) (tierd_degraded) > 0) or vector(0)",
                thresholds=NEVER,
            ),
            stat("Torn tensors", "Of all nodes.", "sum(tierd_torn_tensors)", thresholds=NEVER),
            stat(
                "Devices not online",
                "SSD devices that are suspect, offline or gone.",
                'sum(tierd_device_state{state!="online"}) or vector(0)',
                thresholds=NEVER,
            ),
            stat("Jobs", "With series of their own.", 'count(tierd_job_ram_bytes{tierd_job!="(other)"}) or vector(0)'),
            Panel(
                "Which are not",
                "A row for each node that is down, drained or degraded, and of these one for each cause.",
                {"nodes": NOT_WELL},
                kind="table",
                width=20,
                columns=("instance", "state", "cause"),
                colours=(("down", "red"), ("degraded", "red"), ("draining", "yellow"), ("all are well", "green")),
            ),
        ],
        "How full are they": [
            Panel(
                "Arena in use",
                "Part of what windows may reach that holds pages in use, by node.",
                {"{{instance}}": "(tierd_arena_bytes - tierd_arena_free_bytes) / (tierd_arena_max_bytes > 0)"},
                "percentunit",
            ),
            Panel(
                "SSD in use",
                "Live bytes of the devices' capacity, by node.",
                {
                    "{{instance}}": "sum by (instance) (tierd_device_live_bytes) / "
                    "(sum by (instance) (tierd_device_capacity_bytes) > 0)"
                },
                "percentunit",
                thresholds=PART_FULL,
            ),
            Panel(
                "Requests that wait",
                "For RAM, SSD or a lease: what stays above 0 is a node with too much to do.",
                {"{{instance}}": "sum by (instance) (tierd_waiting_requests)"},
                thresholds=((None, "green"), (1, "yellow")),
            ),
            Panel(
                "Acquires, 99 %",
                "How long one in a hundred waited, by node.",
                {
                    "{{instance}}": "histogram_quantile(0.99, sum by (instance, le) "
                    "(rate(tierd_acquire_wait_seconds_bucket[$__rate_interval])))"
                },
                "s",
            ),
        ],
        "What moves": [
            Panel(
                "Swapped out",
                "Bytes written to SSD a second, by node.",
                {"{{instance}}": "rate(tierd_swap_out_bytes_total[$__rate_interval])"},
                "Bps",
            ),
            Panel(
                "Swapped in",
                "Bytes read back from SSD a second, by node.",
                {"{{instance}}": "rate(tierd_swap_in_bytes_total[$__rate_interval])"},
                "Bps",
            ),
            Panel(
                "Jobs that wait most",
                "Seconds of waiting a second, of the ten jobs with most.",
                {
                    OF_JOB + " on {{instance}}": "topk(10, sum by (instance, tierd_job, uid) "
                    "(rate(tierd_job_stall_seconds_total[$__rate_interval])))"
                },
            ),
            Panel(
                "Largest jobs",
                "Bytes in RAM, of the ten jobs with most.",
                {OF_JOB + " on {{instance}}": 'topk(10, tierd_job_ram_bytes{tierd_job!="(other)"})'},
                "bytes",
            ),
        ],
    },
    {"Node": "tierd-node", "Job": "tierd-job"},
)
