--- The visible GPUs of a trial: those of its slot, so that concurrent trials share none while there are enough.
local C = require "accelhost._C"

local gpus = {}

local function stays_on_cpu(definition)
  for _, name in ipairs {"ACCELHOST_USE_CPU", "ACCELERATE_USE_CPU"} do
    local value = definition.variables[name] or os.getenv(name)
    if value and not ("0 false no off"):find(tostring(value):lower(), 1, true) then return true end
  end
  return definition.variables.CUDA_VISIBLE_DEVICES ~= nil
end

--- The GPUs of this machine that trials may use, as CUDA_VISIBLE_DEVICES names them; none where they stay on the CPU or
--- set their visible devices themselves.
function gpus.of(definition)
  if definition.launcher == "slurm" or definition.inline or stays_on_cpu(definition) then return {} end
  local count, visible, list = C.device.device_count "cuda", os.getenv "CUDA_VISIBLE_DEVICES", {}
  for name in (visible or ""):gmatch "[^,]+" do
    if #list < count then list[#list + 1] = name end
  end
  for i = #list, count - 1 do list[i + 1] = tostring(i) end
  return list
end

--- Those of a slot, for as many ranks; nil where there are none.
---@param list string[]
---@param slot integer from 0
---@param ranks integer
---@return string?
function gpus.share(list, slot, ranks)
  if #list == 0 then return nil end
  local own = {}
  for i = 1, math.min(ranks, #list) do own[i] = list[(slot * ranks + i - 1) % #list + 1] end
  return table.concat(own, ",")
end

return gpus
