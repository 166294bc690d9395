--- Functions for specs of numbers and errors.
--
--   local check = require "spec.support.check"
--   check.raises("Linear: 'in_features' is missing", function() nn.Linear() end)
--   check.near({1, 2}, tensor, 1e-12)
local check = {}

--- Run fn, which must raise an error whose text contains `text`.
---@param text string plain text
---@param fn function
---@param ... any its arguments
---@return string message
function check.raises(text, fn, ...)
  local fine, message = pcall(fn, ...)
  if fine then error(("expected the error '%s', but there was none"):format(text), 2) end
  message = tostring(message)
  if not message:find(text, 1, true) then
    error(("expected the error '%s', got '%s'"):format(text, message), 2)
  end
  return message
end

--- Raise unless a text has a part, which is plain text.
---@param text string
---@param part string
function check.has(text, part)
  if not text:find(part, 1, true) then error(("expected '%s' in:\n%s"):format(part, text), 2) end
end

--- The elements of a tensor, in row-major order.
---@param tensor table
---@return number[]
function check.flat(tensor)
  return tensor:detach():reshape(-1):tolist()
end

--- Compare numbers (NaN equals NaN): |expected - actual| <= tolerance * max(1, |expected|).
---@param expected number[]|number
---@param actual table|number[]|number a tensor or numbers
---@param tolerance number
---@param what string? for the message
function check.near(expected, actual, tolerance, what)
  if type(expected) == "number" then expected = {expected} end
  if type(actual) == "number" then
    actual = {actual}
  elseif type(actual) == "userdata" then
    actual = check.flat(actual)
  end
  what = what and what .. ": " or ""
  if #expected ~= #actual then
    error(("%sexpected %d numbers, got %d"):format(what, #expected, #actual), 2)
  end
  for i = 1, #expected do
    local e, a = expected[i], actual[i]
    local same = e == a or (e ~= e and a ~= a) or math.abs(e - a) <= tolerance * math.max(1, math.abs(e))
    if not same then error(("%selement %d: expected %.17g, got %.17g"):format(what, i - 1, e, a), 2) end
  end
end

return check
