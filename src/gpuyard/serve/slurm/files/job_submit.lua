--[[
Holds GPU jobs for gpuyard when they are submitted. It is needed for `control = "start"` only.

Install: copy this file next to slurm.conf, and gpuyard-hold.conf with it; set JobSubmitPlugins=lua in slurm.conf;
run `scontrol reconfigure`. A site that has a job_submit.lua calls gpuyard_submit and gpuyard_modify from it.

Safe by default: nothing is held unless the agent showed life within the last max_age_s seconds. Without its
heartbeat file, with an old, empty or unreadable one, with one from the future, with a halt file, or after any
error in this script, jobs go to Slurm as if it were not there.

Held jobs have priority 0 and the word gpuyard:held in AdminComment. Interactive jobs (srun, salloc) are held as
well: they wait for the agent as batch jobs do. Set interactive = no to leave them to Slurm.
]]

local CONFIG_NAME = "gpuyard-hold.conf"
local HELD = "gpuyard:held"

-- What gpuyard-hold.conf may set, one `name = value` per line; lines that begin with # are comments.
local DEFAULTS = {
  heartbeat = "/var/lib/gpuyard/heartbeat", -- the agent's last round, seconds since 1970
  halt = "/var/lib/gpuyard/halt",           -- while this file exists nothing is held
  max_age_s = "60",                         -- an older heartbeat is that of a dead agent
  partitions = "",                          -- between commas; empty: all
  interactive = "yes",                      -- whether srun and salloc are held, too
  refuse_self_release = "no",               -- whether owners may not release jobs that are held for the agent
}

-- Slurm's marks for "not set" and "without limit", of 16, 32 and 64 bits.
local UNSET = {
  [65534] = true, [65535] = true, [4294967294] = true, [4294967295] = true,
  [1.8446744073709552e19] = true,
}

local function directory_of_this_file()
  local source = debug and debug.getinfo(1, "S").source or ""
  return source:match("^@(.*/)[^/]*$") or "/etc/slurm/"
end

local DIRECTORY = directory_of_this_file()

local function first_line(path)
  local file = io.open(path, "r")
  if file == nil then return nil end
  local line = file:read("*l")
  file:close()
  return line
end

local function exists(path)
  local file, _, code = io.open(path, "r")
  if file ~= nil then file:close() return true end
  return code == 13 -- a file that may not be read is there all the same
end

local function read_config()
  local config = {}
  for name, value in pairs(DEFAULTS) do config[name] = value end
  local file = io.open(DIRECTORY .. CONFIG_NAME, "r")
  if file == nil then return config end
  for line in file:lines() do
    local name, value = line:match("^%s*([%a_]+)%s*=%s*(.-)%s*$")
    if name ~= nil and config[name] ~= nil then config[name] = value end
  end
  file:close()
  return config
end

local function agent_lives(config)
  if exists(config.halt) then return false end
  local line = first_line(config.heartbeat)
  local beat = line and tonumber(line:match("^%s*(%d+%.?%d*)"))
  local most = tonumber(config.max_age_s)
  if beat == nil or most == nil then return false end
  -- Not <=: os.time() has whole seconds, and what the watchdog takes for dead must hold no more jobs.
  return math.abs(os.time() - beat) < most -- a heartbeat from the future is none, either
end

local function is_set(text)
  return text ~= nil and text ~= ""
end

local function number_or_nil(value)
  if type(value) ~= "number" or UNSET[value] then return nil end
  return value
end

local function asks_for_gpus(job)
  for _, name in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "gres" }) do
    local asked = job[name]
    if is_set(asked) and asked:find("gpu", 1, true) then return true end
  end
  return false
end

-- Mirrors what the agent leaves to Slurm: a job that it would not handle must not be held.
local function left_to_slurm(job)
  if number_or_nil(job.priority) == 0 then return "held by its user" end
  if is_set(job.dependency) then return "dependency" end
  if is_set(job.licenses) then return "licences" end
  if is_set(job.reservation) then return "reservation" end
  if is_set(job.req_nodes) or is_set(job.exc_nodes) then return "nodes named" end
  if is_set(job.features) then return "features" end
  if is_set(job.tres_per_socket) then return "GPUs per socket" end
  if is_set(job.burst_buffer) then return "burst buffer" end
  if number_or_nil(job.het_job_offset) ~= nil then return "heterogeneous" end
  if (number_or_nil(job.begin_time) or 0) > os.time() then return "begin time" end
  if is_set(job.array_inx) and job.array_inx:find("%", 1, true) then return "array with a throttle" end
  if is_set(job.partition) and job.partition:find(",", 1, true) then return "several partitions" end
  local least, most = number_or_nil(job.min_nodes), number_or_nil(job.max_nodes)
  if least ~= nil and most ~= nil and most > 0 and least ~= most then return "a range of nodes" end
  return nil
end

local function in_partitions(config, job, part_list)
  if config.partitions == "" then return true end
  local wanted = job.partition
  if not is_set(wanted) then
    for name, part in pairs(part_list or {}) do
      if part.flag_default == 1 then wanted = name end
    end
  end
  for name in config.partitions:gmatch("[^,%s]+") do
    if name == wanted then return true end
  end
  return false
end

function gpuyard_submit(job, part_list, uid)
  local config = read_config()
  if not asks_for_gpus(job) or not in_partitions(config, job, part_list) then return end
  if config.interactive ~= "yes" and not is_set(job.script) then return end
  if left_to_slurm(job) ~= nil or not agent_lives(config) then return end
  job.priority = 0
  job.admin_comment = is_set(job.admin_comment) and job.admin_comment .. "; " .. HELD or HELD
end

-- Whether a change is refused: only an owner's attempt to start a job that waits for a living agent.
function gpuyard_modify(job, record, part_list, uid)
  local config = read_config()
  if config.refuse_self_release ~= "yes" or uid == 0 or uid ~= record.user_id then return false end
  if job.priority == nil or job.priority == 4294967294 or job.priority == 0 then return false end
  local comment = record.admin_comment or ""
  return record.priority == 0 and comment:find("gpuyard:", 1, true) ~= nil and agent_lives(config)
end

function slurm_job_submit(job, part_list, uid)
  local fine, problem = pcall(gpuyard_submit, job, part_list, uid)
  if not fine then slurm.log_error("gpuyard: a job is left to Slurm: %s", tostring(problem)) end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, part_list, uid)
  local fine, refused = pcall(gpuyard_modify, job, record, part_list, uid)
  if not fine then
    slurm.log_error("gpuyard: a change is left to Slurm: %s", tostring(refused))
  elseif refused then
    slurm.log_user("this job waits for the scheduling agent, which will start it; it cannot be released by hand")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
