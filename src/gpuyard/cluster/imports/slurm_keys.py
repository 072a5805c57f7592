"""Keys of slurm.conf and what they mean for a simulation (slurm.conf(5) of Slurm 22.05 to 25.05).

Keys are in lower case. Those that are read are in ``slurm_conf`` and ``slurm_policy``.
"""

USED = frozenset(
    {
        *("clustername", "include", "gresterms", "grestypes", "selecttypeparameters"),
        *("prioritytype", "priorityweightage", "priorityweightfairshare", "priorityweightjobsize"),
        *("priorityweightpartition", "priorityweightqos", "priorityweighttres", "prioritymaxage"),
        *("prioritydecayhalflife", "prioritycalcperiod", "priorityfavorsmall", "priorityflags"),
        *("schedulertype", "schedulerparameters"),
    }
)
"""Keys of their own line that shape the cluster or the policy."""

NOT_MODELLED = {
    "accountingstorageenforce": "limits of QOSes hold here whether or not Slurm enforces them",
    "defaultstoragetype": "",
    "defcpupergpu": "jobs have the CPUs that the log says",
    "defmempercpu": "jobs have the memory that the log says",
    "defmempergpu": "jobs have the memory that the log says",
    "defmempernode": "jobs have the memory that the log says",
    "downnodes": "these nodes count as up",
    "enforcepartlimits": "a job above a limit of its partition is refused or left out (oversize)",
    "fairsharedampeningfactor": "the factor is 1",
    "jobrequeue": "jobs run once",
    "killwait": "jobs end at once",
    "licenses": "licences are not counted",
    "maxmempercpu": "",
    "maxmempernode": "",
    "overtimelimit": "with kill_at_estimate, jobs end at their limit",
    "preemptexempttime": "nothing preempts",
    "preemptmode": "nothing preempts",
    "preempttype": "nothing preempts",
    "priorityparameters": "",
    "prioritysitefactorparameters": "there is no site factor",
    "prioritysitefactorplugin": "there is no site factor",
    "priorityusageresetperiod": "usage is never reset, only decayed",
    "priorityweightassoc": "there is no association factor",
    "resvoverrun": "reservations are left out",
    "schedulertimeslice": "jobs do not take turns",
    "suspendexcnodes": "nodes do not sleep unless sleep_after_s is set",
    "suspendprogram": "nodes do not sleep unless sleep_after_s is set",
    "suspendtime": "nodes do not sleep unless sleep_after_s is set",
    "topologyparam": "topology is left out",
    "topologyplugin": "topology is left out",
}
"""Keys of their own line that say who runs when and where, and what is done about that here."""

_NO_EFFECT_BEGINS = (
    *(
        "accountingstor",
        "acctgather",
        "auth",
        "backup",
        "bcast",
        "burstbuffer",
        "certmgr",
        "cli",
        "communication",
    ),
    *(
        "control",
        "core",
        "cpufreq",
        "cred",
        "debug",
        "dependencyparameters",
        "epilog",
        "extsensors",
        "federation",
    ),
    *("gpufreq", "group", "hash", "healthcheck", "job", "launch", "log", "mail", "mcs", "mpi", "namespace"),
    *(
        "nodefeatures",
        "plug",
        "power",
        "prep",
        "private",
        "proctrack",
        "prolog",
        "propagate",
        "reboot",
        "requeue",
    ),
    *(
        "resume",
        "resv",
        "route",
        "scron",
        "slurm",
        "srun",
        "ssh",
        "statesave",
        "suspend",
        "switch",
        "task",
        "tcp",
    ),
    *("tls", "tmpfs", "track", "tree", "unkillable", "url", "usepam", "vsize", "x11", "dataparser", "getenv"),
)
_NO_EFFECT = frozenset(
    {
        *("allowspecresourcesusage", "batchstarttimeout", "completewait", "disablerootjobs", "eiotimeout"),
        *("firstjobid", "inactivelimit", "interactivestepoptions", "killonbadexit", "maxarraysize"),
        *("maxdbdmsgs", "maxbatchrequeue", "maxjobcount", "maxjobid", "maxnodecount", "maxstepcount"),
        *("maxtaskspernode", "messagetimeout", "minjobage", "reconfigflags", "returntoservice", "selecttype"),
        *("waittime", "cachegroups", "cryptotype", "fastschedule", "usespecresources", "frontendname"),
        *("gresdefault", "enablejobsteps", "metricstype"),
    }
)


def has_no_effect(key: str) -> bool:
    """Whether a known key does not concern who runs when and where."""
    return key in _NO_EFFECT or key.startswith(_NO_EFFECT_BEGINS)


FLAGS = {
    "no_fair_tree": "",
    "fair_tree": "",
    "accrue_always": "a job's age counts from when it enters its queue",
    "calculate_running": None,
    "depth_oblivious": "accounts have one level",
    "incr_only": "priorities may fall",
    "max_tres": "usage is GPU time",
    "max_tres_gres": "usage is GPU time",
    "no_normal_all": "factors lie between 0 and 1",
    "no_normal_assoc": "there is no association factor",
    "no_normal_part": "the partition factor lies between 0 and 1",
    "no_normal_qos": "the QOS factor lies between 0 and 1",
    "no_normal_tres": "shares of resources lie between 0 and 1",
    "small_relative_to_time": "size does not depend on the time limit",
    "ticket_based": "Slurm itself no longer has it",
}
"""PriorityFlags: what happens here instead; empty: it is modelled; None: it has no effect."""

SCHEDULER_OPTIONS = frozenset(
    {
        *(
            "allow_zero_lic",
            "assoc_limit_stop",
            "batch_sched_delay",
            "bb_array_stage_cnt",
            "bf_allow_magnetic_slot",
        ),
        *(
            "bf_busy_nodes",
            "bf_continue",
            "bf_hetjob_immediate",
            "bf_hetjob_prio",
            "bf_job_part_count_reserve",
        ),
        *(
            "bf_licenses",
            "bf_max_job_array_resv",
            "bf_max_job_assoc",
            "bf_max_job_start",
            "bf_max_job_user_part",
        ),
        *(
            "bf_max_time",
            "bf_min_age_reserve",
            "bf_min_prio_reserve",
            "bf_node_space_size",
            "bf_one_resv_per_job",
        ),
        *("bf_running_job_reserve", "bf_topopt_enable", "bf_topopt_iterations", "bf_window_linear"),
        *(
            "bf_yield_interval",
            "bf_yield_rpc_cnt",
            "bf_yield_sleep",
            "build_queue_timeout",
            "correspond_after_task_cnt",
        ),
        *(
            "default_gbytes",
            "default_queue_depth",
            "defer",
            "defer_batch",
            "delay_boot",
            "disable_job_shrink",
        ),
        *("enable_user_top", "extra_constraints", "ff_wait", "ff_wait_value", "ignore_constraint_validation"),
        *(
            "ignore_numa",
            "ignore_prefer_validation",
            "job_start_batch",
            "max_array_tasks",
            "max_depend_depth",
        ),
        *("max_rpc_cnt", "max_sched_time", "max_script_size", "max_submit_line_size", "max_switch_wait"),
        *("no_backup_scheduling", "no_env_cache", "nohold_on_prolog_fail", "pack_serial_at_end"),
        *("partition_job_depth", "preempt_reorder_count", "preempt_strict_order", "preempt_youngest_first"),
        *("reduce_completing_frag", "requeue_setup_env_fail", "salloc_wait_nodes", "sbatch_wait_nodes"),
        *("sched_interval", "sched_max_job_start", "sched_min_interval", "sched_preempt", "spec_cores_first"),
        *(
            "step_retry_count",
            "step_retry_time",
            "time_min_as_soft_limit",
            "use_pids",
            "whole_hetjob",
            "whole_pack",
        ),
        *("enable_hetjob_steps", "disable_hetjob_steps", "bf_prio_sort", "enable_job_state_cache"),
    }
)
"""SchedulerParameters that are known and not modelled (docs/contract/slurm.md, section 7)."""

NODE_USED = frozenset(
    {
        *("nodename", "cpus", "procs", "boards", "sockets", "socketsperboard", "corespersocket"),
        *("threadspercore", "realmemory", "gres", "state"),
    }
)
NODE_NOT_MODELLED = {
    "weight": "placements do not prefer nodes by weight",
    "features": "constraints of jobs are left out",
    "feature": "constraints of jobs are left out",
    "corespeccount": "all CPUs run jobs",
    "cpuspeclist": "all CPUs run jobs",
    "memspeclimit": "all memory is for jobs",
    "restrictedcorespergpu": "all CPUs run jobs",
    "tresweights": "placements do not prefer nodes by weight",
    "topology": "topology is left out",
}
NODE_NO_EFFECT = frozenset(
    {"nodehostname", "nodeaddr", "bcastaddr", "cpubind", "port", "reason", "tmpdisk", "cgroup", "instanceid"}
)

PARTITION_USED = frozenset(
    {
        *("partitionname", "nodes", "default", "prioritytier", "priorityjobfactor", "priority"),
        *("maxtime", "maxnodes", "qos"),
    }
)
PARTITION_NOT_MODELLED = {
    "defaulttime": "jobs without a request have none here",
    "exclusiveuser": "users share nodes",
    "exclusivetopo": "topology is left out",
    "overtimelimit": "with kill_at_estimate, jobs end at their limit",
    "minnodes": "a job may use fewer nodes",
    "maxcpuspernode": "a job may use all CPUs of a node",
    "maxcpuspersocket": "a job may use all CPUs of a node",
    "maxmempernode": "a job may use all memory of a node",
    "maxmempercpu": "a job may use all memory of a node",
    "lln": "the placement rule says where jobs go",
    "oversubscribe": "GPUs and CPUs are not shared unless jobs ask for shares; EXCLUSIVE is not kept",
    "shared": "GPUs and CPUs are not shared unless jobs ask for shares; EXCLUSIVE is not kept",
    "preemptmode": "nothing preempts",
    "gracetime": "nothing preempts",
    "reqresv": "reservations are left out",
    "selecttypeparameters": "the same for all partitions",
    "suspendtime": "nodes do not sleep unless sleep_after_s is set",
    "topology": "topology is left out",
    "tresbillingweights": "usage is GPU time",
}
PARTITION_NO_EFFECT = frozenset(
    {
        *("allocnodes", "allowaccounts", "allowgroups", "allowqos", "alternate", "cpubind", "defcpupergpu"),
        *("defmempercpu", "defmempergpu", "defmempernode", "denyaccounts", "denyqos", "disablerootjobs"),
        *("hidden", "jobdefaults", "resumetimeout", "rootonly", "suspendtimeout", "powerdownonidle"),
        *("allowusers", "denyusers"),
    }
)
