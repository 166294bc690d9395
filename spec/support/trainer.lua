--- Helpers of the Trainer's specs.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local silently = require "spec.support.silently"

local trainer = {}

--- A set of rows of 4 numbers and the class that their sum decides.
function trainer.set_of(rows)
  accelhost.manual_seed(5)
  local x = accelhost.randn(rows, 4)
  return accelhost.data.TensorDataset(x, x:sum(1):gt(0):to "int64")
end

--- Call fn and drop its printed text; it must raise an error that contains `text`.
function trainer.fails(text, fn, ...) check.raises(text, silently, fn, ...) end

return trainer
