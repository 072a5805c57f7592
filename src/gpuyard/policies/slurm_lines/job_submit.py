"""The script for Slurm's plug-in job_submit/lua that does what a routing says."""

from gpuyard.policies.slurm_lines.routing import Lane, Routing, ScoreClasses

_GPUS = """\
local function count(text)
   local gpu = string.match(text or "", "gpu([^,]*)")
   return gpu and (tonumber(string.match(gpu, "[:=](%d+)$")) or 1) or 0
end

local function stated(number)
   return (number and number < slurm.NO_VAL16) and number or 1
end

local function gpus(job)
   return math.max(count(job.tres_per_job), count(job.tres_per_node) * stated(job.min_nodes),
                   count(job.tres_per_task) * stated(job.num_tasks))
end
"""
_END = """\
   return slurm.SUCCESS
end

function slurm_job_modify(job, old, partitions, uid)
   return slurm.SUCCESS
end
"""


def job_submit_lua(routing: Routing) -> str:
    """The script; empty if jobs stay as they are."""
    lane = routing.qos if isinstance(routing.qos, Lane) else None
    classes = routing.classes
    if classes is None and lane is None:
        return ""
    parts = [] if classes is None else [_tables(classes)]
    parts += [_GPUS] if classes is not None and classes.by_gpus else []
    body = [
        "function slurm_job_submit(job, partitions, uid)",
        "   local limit = job.time_limit",
        "   local known = limit ~= nil and limit < slurm.NO_VAL and limit ~= slurm.INFINITE",
    ]
    body += [] if classes is None else _choice(classes)
    if lane is not None:
        body += [
            f"   if not known or 60 * limit > {lane.above_s:g} then",
            f'      job.qos = "{lane.qos}"',
            "   end",
        ]
    return "\n".join([*parts, "\n".join(body), _END])


def _tables(classes: ScoreClasses) -> str:
    bounds = ", ".join(repr(float(bound)).removesuffix(".0") for bound in classes.bounds)
    names = ", ".join(f'"{suffix}"' for suffix in classes.suffixes)
    bases = ", ".join(f'["{base.name}"] = true' for base in classes.bases)
    return f"local bounds = {{{bounds}}}\nlocal names = {{{names}}}\nlocal bases = {{{bases}}}\n"


def _choice(classes: ScoreClasses) -> list[str]:
    time = "60 * limit" if classes.exponent == 1.0 else f"(60 * limit) ^ {classes.exponent:g}"
    score = f"{time} * gpus(job)" if classes.by_gpus else time
    return [
        "   local class = #names",
        "   if known then",
        f"      local score = {score}",
        "      for number = #bounds, 1, -1 do",
        "         if score <= bounds[number] then class = number end",
        "      end",
        "   end",
        f'   local asked = job.partition or "{classes.default}"',
        '   local base = bases[asked] and asked or string.match(asked, "^(.*)%-[^-]*$")',
        '   if bases[base] then job.partition = base .. "-" .. names[class] end',
    ]
