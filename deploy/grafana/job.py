"""Jobs of one node."""

from __future__ import annotations

from dashboard import DATA_SOURCE, HIT, INSTANCE, JOB, JOBS, NEVER, OF_JOB, Board, Panel, rate

BOARD = Board(
    "tierd-job",
    "tierd: job",
    "One or several jobs of a node: where their tensors lie and what they wait for.",
    [DATA_SOURCE, INSTANCE, JOBS],
    {
        "Where its tensors are": [
            Panel(
                "RAM",
                "Bytes of the arena that hold the job's tensors.",
                {OF_JOB: f"tierd_job_ram_bytes{{{JOB}}}"},
                "bytes",
            ),
            Panel(
                "SSD",
                "Bytes of extents that hold the job's tensors.",
                {OF_JOB: f"tierd_job_ssd_bytes{{{JOB}}}"},
                "bytes",
            ),
            Panel(
                "Leased and dirty",
                "Bytes under leases, and sealed bytes that have no copy on SSD yet.",
                {
                    f"leased {OF_JOB}": f"tierd_job_leased_bytes{{{JOB}}}",
                    f"dirty {OF_JOB}": f"tierd_job_dirty_bytes{{{JOB}}}",
                },
                "bytes",
            ),
            Panel(
                "Torn tensors",
                "Tensors a dead writer left between two generations.",
                {OF_JOB: f"tierd_job_torn_tensors{{{JOB}}}"},
                thresholds=NEVER,
            ),
        ],
        "What it may have": [
            Panel(
                "Guarantee, share and limit",
                "RAM that the job is promised, may hold now, and may not exceed (absent: no limit).",
                {
                    f"guarantee {OF_JOB}": f"tierd_job_guarantee_bytes{{{JOB}}}",
                    f"share {OF_JOB}": f"tierd_job_share_bytes{{{JOB}}}",
                    f"limit {OF_JOB}": f"tierd_job_limit_bytes{{{JOB}}}",
                },
                "bytes",
            ),
            Panel(
                "Held and requested",
                "Windows of the job, what its tensors in RAM take of these, and the rest.",
                {
                    f"held {OF_JOB}": f"sum by (tierd_job, uid) (tierd_job_held_bytes{{{JOB}}})",
                    f"requested {OF_JOB}": f"sum by (tierd_job, uid) (tierd_job_requested_bytes{{{JOB}}})",
                    f"waste {OF_JOB}": f"tierd_job_waste_bytes{{{JOB}}}",
                    f"free {OF_JOB}": f"tierd_job_free_bytes{{{JOB}}}",
                    f"largest free run {OF_JOB}": f"tierd_job_largest_run_bytes{{{JOB}}}",
                },
                "bytes",
            ),
            Panel(
                "Borrowed and owed",
                "Windows beyond what the job is promised; asked for within that and not there yet; on their way back.",
                {
                    f"borrowed {OF_JOB}": f"tierd_job_borrowed_bytes{{{JOB}}}",
                    f"owed {OF_JOB}": f"tierd_job_owed_bytes{{{JOB}}}",
                    f"returning {OF_JOB}": f"tierd_job_returning_bytes{{{JOB}}}",
                },
                "bytes",
                width=24,
            ),
        ],
        "What it waits for": [
            Panel(
                "Swap traffic",
                "Bytes to and from SSD a second.",
                {
                    f"out {OF_JOB}": rate("tierd_job_swap_out_bytes_total", JOB),
                    f"in {OF_JOB}": rate("tierd_job_swap_in_bytes_total", JOB),
                },
                "Bps",
            ),
            Panel(
                "Stalls",
                "Seconds of waiting a second: 1 is one rank that only waits.",
                {OF_JOB: rate("tierd_job_stall_seconds_total", JOB)},
            ),
            Panel(
                "Acquires",
                "Ranges acquired a second: found in RAM (hit), and waited for (miss).",
                {"{{result}} " + OF_JOB: rate("tierd_job_acquires_total", JOB)},
                "ops",
            ),
            Panel(
                "Hit ratio",
                "Part of the acquired ranges that were in RAM when asked for.",
                {
                    OF_JOB: "sum by (tierd_job, uid) ("
                    + rate("tierd_job_acquires_total", JOB + HIT)
                    + ") / (sum by (tierd_job, uid) ("
                    + rate("tierd_job_acquires_total", JOB)
                    + ") > 0)"
                },
                "percentunit",
            ),
            Panel("Sessions", "Attached ranks.", {OF_JOB: f"tierd_job_sessions{{{JOB}}}"}),
            Panel("Tensors", "Tensors stored.", {OF_JOB: f"tierd_job_tensors{{{JOB}}}"}),
        ],
    },
    {"Fleet": "tierd-fleet", "Node": "tierd-node"},
)
