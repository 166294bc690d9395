--- The launcher's settings for this job's script (flags, variables, a configuration file): they reach the ranks as
--- variables of the environment, and hold where the script itself sets nothing.
local arguments = require "accelhost.util.arguments"
local warn = require "accelhost.util.warn"

local launched = {}

-- setting -> {variables, the first one that is set counts; how a text becomes the value}
local settings = {
  mixed_precision = {{"ACCELHOST_MIXED_PRECISION", "ACCELERATE_MIXED_PRECISION"}, string.lower},
  gradient_accumulation_steps = {
    {"ACCELHOST_GRADIENT_ACCUMULATION_STEPS", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"}, tonumber,
  },
  share = {{"ACCELHOST_SHARE"}, function(text) return text end},
  cpu = {
    {"ACCELHOST_USE_CPU", "ACCELERATE_USE_CPU"},
    function(text)
      local words = {["true"] = true, yes = true, on = true, ["1"] = true, ["false"] = false, no = false, off = false,
        ["0"] = false}
      return words[text:lower()]
    end,
  },
}

--- The value of a setting: the script's own, else the launcher's, else the default. Both, and different: the script's,
--- and a warning.
---@param what string the function that uses it, for messages
---@param kind string of accelhost.util.kinds
---@param own any the script's setting, nil for none
function launched.settle(what, name, kind, own, default)
  for _, variable in ipairs(settings[name][1]) do
    local text = os.getenv(variable)
    if text and text ~= "" then
      local value = settings[name][2](text)
      if own ~= nil then
        if own ~= value then
          warn(("%s: the script sets %s = %s; %s from %s is ignored"):format(what, name, tostring(own), text, variable))
        end
        return own
      end
      if value == nil then value = text end
      return arguments.check(what, ("%s (from %s)"):format(name, variable), kind, value)
    end
  end
  if own ~= nil then return own end
  return default
end

return launched
