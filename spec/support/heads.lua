-- Models with a head on checkpoints without it, as the fixtures' scripts make them.
local accelhost = require "accelhost"
local models = accelhost.models

local heads = {}

--- Set the weights that a folder lacks to sines, by their order.
---@param missing string[]
function heads.fill(model, missing)
  accelhost.no_grad(function()
    for i, name in ipairs(missing) do
      local parameter = model:get_parameter(name)
      local places = accelhost.arange(parameter:numel(), {dtype = "float64"})
      parameter:copy_(((places + i):sin() * 0.5):view(parameter:shape()))
    end
  end)
end

--- Load a folder with a head, as from_pretrained does but for the warning of missing weights, which must be these.
---@param class string
---@param missing string[]
---@param fields? table of the configuration
function heads.load(folder, class, missing, fields)
  local Model = models[class]
  if #missing == 0 then return Model.from_pretrained(folder, fields) end
  local model = Model(models.AutoConfig.from_pretrained(folder, fields))
  local report = model:load_state_dict(accelhost.load(folder .. "/model.safetensors"), {strict = false})
  table.sort(report.missing_keys)
  local found = table.concat(report.missing_keys, " ")
  assert(found == table.concat(missing, " "), "missing: " .. found)
  heads.fill(model, report.missing_keys)
  return model:eval()
end

return heads
