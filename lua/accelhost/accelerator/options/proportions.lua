--- Batch proportions: the part of a global batch that each process gets, where the launcher was configured with unequal
--- ones (--share).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local launched = require "accelhost.util.launched"
local objects = require "accelhost.accelerator.process.objects"
local batch_proportions = require "accelhost.data.partition.proportions"

local fail = arguments.fail
local proportions = {}

-- Check that the launchers of a job on several machines, each configured separately, agree. A collective.
local function check_alike(text)
  local texts, ranks = objects.all_gather("Accelerator", text)
  for rank = 2, ranks do
    if texts[rank] ~= texts[1] then
      fail("Accelerator: share: rank %d has %s, rank 0 has %s", rank - 1, texts[rank], texts[1])
    end
  end
end

-- The part of a machine is divided equally among its processes. A collective.
local function by_rank(of_machines)
  local machines, ranks = objects.all_gather("Accelerator", tonumber(os.getenv "GROUP_RANK") or 0)
  local counts, multiple, result = {}, 1, {}
  for rank = 1, ranks do counts[machines[rank]] = (counts[machines[rank]] or 0) + 1 end
  for _, count in pairs(counts) do
    local step = multiple
    while multiple % count ~= 0 do multiple = multiple + step end
  end
  for rank = 1, ranks do
    local machine = machines[rank]
    result[rank] = of_machines[machine + 1] * multiple / counts[machine]
  end
  return result
end

--- Return the batch proportions of the processes; nil: even. On several machines a collective where they are
--- configured.
---@return integer[]?
function proportions.read()
  local text = launched.settle("Accelerator", "share", "string", nil, nil)
  if not text then return nil end
  local machines, ranks = tonumber(os.getenv "GROUP_WORLD_SIZE") or 1, C.comm.size()
  if machines > 1 and ranks > 1 then check_alike(text) end
  local list = batch_proportions.read(text)
  if not list then
    fail("Accelerator: share (from ACCELHOST_SHARE): expected whole numbers above 0 with colons between them, got '%s'",
      text)
  end
  if #list == ranks then return list end
  if machines > 1 and #list == machines then return by_rank(list) end
  fail("Accelerator: share (from ACCELHOST_SHARE): %s is for %d processes%s, this job has %d%s", text, #list,
    machines > 1 and " or machines" or "", ranks, machines > 1 and (" on %d machines"):format(machines) or "")
end

return proportions
