"""One node."""

from __future__ import annotations

from dashboard import (
    DATA_SOURCE,
    DEVICE_QUANTILE,
    HIT,
    INSTANCE,
    NEVER,
    NODE,
    NOT_OK,
    OF_JOB,
    Board,
    Panel,
    of_tierd,
    quantile,
    rate,
    stat,
)

# "SSD full" would read as a full disk.
SSD_MODE = f'label_replace(tierd_ssd_mode{{{NODE}}} == 1, "mode", "as configured", "mode", "full")'

BOARD = Board(
    "tierd-node",
    "tierd: node",
    "One node: arena, SSD tier, waiting, modes.",
    [DATA_SOURCE, INSTANCE],
    {
        "State": [
            stat("Version", "Which build runs.", f"tierd_build_info{{{NODE}}}", "{{version}}", unit="none"),
            Panel(
                "Modes",
                "io_uring, or the slower threads; memory pinned or not (tierctl doctor says why); the SSD tier as "
                "configured, reduced where the disk is nearly full, or none.",
                {
                    "I/O {{mode}}": f"tierd_io_mode{{{NODE}}} == 1",
                    "memory {{mode}}": f"tierd_memory_mode{{{NODE}}} == 1",
                    "SSD {{mode}}": SSD_MODE,
                    "spin {{mode}}": f"tierd_engine_spin_mode{{{NODE}}} == 1",
                },
                "none",
                "stat",
                8,
            ),
            stat(
                "Draining",
                "1: no new job or process is taken (tierctl undrain).",
                f"tierd_draining{{{NODE}}}",
                thresholds=((None, "green"), (1, "yellow")),
            ),
            stat(
                "Degraded",
                "Causes by which tierd does less than it was set up for: tierctl status names them.",
                f"sum(tierd_degraded{{{NODE}}})",
                thresholds=NEVER,
            ),
            stat(
                "Torn tensors",
                "Tensors a dead writer left between two generations: they answer TORN until rewritten or accepted.",
                f"tierd_torn_tensors{{{NODE}}}",
                thresholds=NEVER,
            ),
        ],
        "Memory": [
            Panel(
                "Arena",
                "Host memory in windows, what it may reach, what is free in it, and what was made ahead beside it.",
                {
                    "may reach": f"tierd_arena_max_bytes{{{NODE}}}",
                    "owned": f"tierd_arena_bytes{{{NODE}}}",
                    "made ahead of need": f"tierd_arena_stock_bytes{{{NODE}}}",
                    "free": f"tierd_arena_free_bytes{{{NODE}}}",
                    "free, bound by leases": f"tierd_arena_lease_bound_bytes{{{NODE}}}",
                },
                "bytes",
            ),
            Panel(
                "RAM by job",
                "Bytes of the arena that hold each job's tensors.",
                {OF_JOB: f"tierd_job_ram_bytes{{{NODE}}}"},
                "bytes",
            ),
            Panel(
                "Pool: held and requested",
                "Windows of all jobs, what their tensors in RAM take of these, and the rest.",
                {
                    "held": f"sum(tierd_job_held_bytes{{{NODE}}})",
                    "requested": f"sum(tierd_job_requested_bytes{{{NODE}}})",
                    "waste": f"sum(tierd_job_waste_bytes{{{NODE}}})",
                    "largest free run of a job": f"max(tierd_job_largest_run_bytes{{{NODE}}})",
                },
                "bytes",
            ),
            Panel(
                "Pool: borrowed and owed",
                "Beyond what each job is promised; asked for within that and not there yet; on its way back.",
                {
                    f"borrowed {OF_JOB}": f"tierd_job_borrowed_bytes{{{NODE}}}",
                    f"owed {OF_JOB}": f"tierd_job_owed_bytes{{{NODE}}}",
                    f"returning {OF_JOB}": f"tierd_job_returning_bytes{{{NODE}}}",
                },
                "bytes",
            ),
            Panel(
                "Windows and leases",
                "Windows of the arena, those in huge pages, windows by condition, and leases held.",
                {
                    "windows": f"tierd_windows{{{NODE}}}",
                    "in huge pages": f"tierd_hugetlb_windows{{{NODE}}}",
                    "leases": f"tierd_leases{{{NODE}}}",
                    "{{condition}}": f"tierd_window_conditions{{{NODE}}}",
                },
            ),
            Panel(
                "Taken back and moved",
                "Memory taken from clients that did not give it, by kind, and pieces moved in RAM, a second.",
                {
                    "taken back: {{kind}}": rate("tierd_forced_returns_total", NODE),
                    "moved: {{cause}}": rate("tierd_compaction_moves_total", NODE),
                },
            ),
        ],
        "SSD": [
            Panel(
                "SSD tier",
                "free + live + quarantined = capacity, by device.",
                {
                    "capacity {{device}}": f"tierd_device_capacity_bytes{{{NODE}}}",
                    "live {{device}}": f"tierd_device_live_bytes{{{NODE}}}",
                    "free {{device}}": f"tierd_device_free_bytes{{{NODE}}}",
                    "quarantined {{device}}": f"tierd_device_quarantined_bytes{{{NODE}}}",
                },
                "bytes",
            ),
            Panel(
                "SSD traffic",
                "Bytes read and written a second, by device.",
                {
                    "read {{device}}": rate("tierd_device_read_bytes_total", NODE),
                    "written {{device}}": rate("tierd_device_written_bytes_total", NODE),
                },
                "Bps",
            ),
            Panel(
                "Requests at the devices",
                "At the device now.",
                {"in flight {{device}}": f"tierd_device_inflight_requests{{{NODE}}}"},
                width=8,
            ),
            Panel(
                "Device faults",
                "A second: transfers that failed after a retry, and pieces that came back with a wrong checksum twice.",
                {
                    "errors {{device}}": rate("tierd_device_errors_total", NODE),
                    "corrupt pieces {{device}}": rate("tierd_device_corrupt_pieces_total", NODE),
                    "memory taken away by clients {{device}}": rate("tierd_device_window_faults_total", NODE),
                },
                width=8,
                thresholds=((None, "green"), (0.000001, "red")),
            ),
            Panel(
                "Drive writes a day",
                "How often tierd would write as many bytes as the whole drive has in a day at this rate; where it does "
                "not know the drive, as its own area there has.",
                {
                    "{{device}}": f"sum by (device) ({rate('tierd_device_written_bytes_total', NODE)}) * 86400 / "
                    f"(sum by (device) (tierd_device_drive_bytes{{{NODE}}} > 0) or "
                    f"sum by (device) (tierd_device_capacity_bytes{{{NODE}}} > 0))"
                },
                width=8,
                thresholds=((None, "green"), (1, "yellow"), (3, "red")),
            ),
            Panel(
                "Swap traffic",
                "All jobs: bytes to and from SSD, and writes that were not needed.",
                {
                    "out": rate("tierd_swap_out_bytes_total", NODE),
                    "in": rate("tierd_swap_in_bytes_total", NODE),
                    "writes avoided": rate("tierd_writeback_avoided_bytes_total", NODE),
                    "evicted": rate("tierd_evicted_bytes_total", NODE),
                },
                "Bps",
                width=24,
            ),
            Panel(
                "Device latency",
                "How long requests took, by device, direction and what they were for.",
                {
                    "median {{device}} {{direction}} {{class}}": DEVICE_QUANTILE.format(0.5, NODE),
                    "99 % {{device}} {{direction}} {{class}}": DEVICE_QUANTILE.format(0.99, NODE),
                },
                "s",
            ),
            Panel(
                "Requests by purpose",
                "Bytes a second: for requests of jobs, ahead of need, and for what the daemon moves.",
                {
                    "{{direction}} {{class}}": f"sum by (direction, class) "
                    f"({rate('tierd_device_request_bytes_total', NODE)})"
                },
                "Bps",
            ),
            Panel(
                "Wear",
                "How often a day tierd wrote its area on each device, in the last 24 hours; bytes written to the "
                "devices for each byte that jobs wrote; and whether writes ahead of need wait for the budget, which is "
                "by these areas too (ssd.drive_writes_per_day).",
                {
                    "area writes a day {{device}}": f"tierd_device_drive_writes_per_day{{{NODE}}}",
                    "write amplification": f"sum({rate('tierd_device_written_bytes_total', NODE)}) "
                    f"/ (sum({rate('tierd_sealed_bytes_total', NODE)}) > 0)",
                    "held back": f"tierd_write_budget_slowing{{{NODE}}}",
                },
            ),
            Panel(
                "Device health",
                "What the devices say of themselves (tierd-smart.timer): endurance used, spare left; warnings.",
                {
                    "used {{device}}": f"tierd_device_smart_used_ratio{{{NODE}}}",
                    "spare {{device}}": f"tierd_device_smart_available_spare_ratio{{{NODE}}}",
                    "warnings {{device}}": f"sum by (device) (tierd_device_smart_warning{{{NODE}}})",
                },
                "percentunit",
            ),
        ],
        "Waiting": [
            Panel(
                "Waiting for tensors",
                "How long creates and acquires waited.",
                {"median": quantile(0.5, NODE), "99 %": quantile(0.99, NODE), "99.9 %": quantile(0.999, NODE)},
                "s",
            ),
            Panel(
                "Requests that wait",
                "Now, by what they wait for.",
                {"{{cause}}": f"tierd_waiting_requests{{{NODE}}}"},
                thresholds=((None, "green"), (1, "yellow")),
            ),
            Panel(
                "Stalls",
                "Seconds of waiting a second, by job: 1 is one rank that only waits.",
                {OF_JOB: rate("tierd_job_stall_seconds_total", NODE)},
            ),
            Panel(
                "Hit ratio",
                "Part of the ranges asked for that were in RAM.",
                {
                    "all jobs": f"sum({rate('tierd_acquires_total', NODE + HIT)}) / "
                    f"(sum({rate('tierd_acquires_total', NODE)}) > 0)"
                },
                "percentunit",
            ),
            Panel(
                "Requests",
                "Requests answered a second, by operation.",
                {"{{op}}": f"sum by (op) ({rate('tierd_requests_total', NODE)})"},
                "reqps",
            ),
            Panel(
                "Refusals",
                "Requests that were not answered OK, by code, and by what would have to change for them to be granted.",
                {
                    "{{code}}": f"sum by (code) ({rate('tierd_requests_total', NODE + NOT_OK)}) or vector(0)",
                    "{{reason}}": f"sum by (reason) ({rate('tierd_refusals_total', NODE)})",
                },
                "reqps",
            ),
        ],
        "Host and daemon": [
            Panel(
                "Host memory",
                "What the host has left, and what the daemon itself takes beside the windows.",
                {
                    "available": f"tierd_host_available_bytes{{{NODE}}}",
                    "daemon": f"tierd_daemon_memory_bytes{{{NODE}}}",
                    "records of users": f"sum(tierd_metadata_bytes{{{NODE}}})",
                },
                "bytes",
            ),
            Panel(
                "Memory pressure",
                "Part of the last 10 s in which some task waited for memory (PSI).",
                {"some": f"tierd_host_psi_memory_some_ratio{{{NODE}}}"},
                "percentunit",
                thresholds=((None, "green"), (0.1, "yellow"), (0.3, "red")),
            ),
            Panel(
                "Engine",
                "Turns of the engine thread a second, and spins a second that another thread's turn ended.",
                {
                    "turns/s": rate("tierd_engine_turns_total", NODE),
                    "spin pauses/s": rate("tierd_engine_spin_pauses_total", NODE),
                },
            ),
            Panel(
                "Daemon",
                "Processors that it uses, and open files of what it may open.",
                {
                    "processors": of_tierd(rate("process_cpu_seconds_total", NODE), NODE),
                    "open files": of_tierd(f"process_open_fds{{{NODE}}} / process_max_fds{{{NODE}}}", NODE),
                },
            ),
        ],
    },
    {"Fleet": "tierd-fleet", "Job": "tierd-job"},
)
