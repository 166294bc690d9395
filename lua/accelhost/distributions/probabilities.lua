--- Probabilities and logits, of which a distribution has one and computes the other.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local shapes = require "accelhost.distributions.shapes"

local probabilities = {}

local function clamped(probs)
  local eps = C.dtype.finfo(probs.dtype).eps
  return probs:clamp(eps, 1 - eps)
end

--- Raise unless exactly one of both is there.
function probabilities.check_one(name, probs, logits)
  if (probs == nil) == (logits == nil) then
    arguments.fail("%s: expected either probs or logits, got %s", name, probs == nil and "neither" or "both")
  end
end

--- Let a class have both, each computed from the other one: an object is made of `_probs` or `_logits`.
---@param binary boolean the probability of one event, else of each along the last dim
function probabilities.add(cls, binary)
  function cls:_get_probs()
    if not rawget(self, "_probs") then
      self._probs = binary and self._logits:sigmoid() or self._logits:softmax(-1)
    end
    return self._probs
  end

  function cls:_get_logits()
    if not rawget(self, "_logits") then
      local probs = clamped(self._probs)
      self._logits = binary and probs:log() - (-probs):log1p() or probs:log()
    end
    return self._logits
  end

  -- The one that an object was made of, under its public name.
  function cls:extra_repr()
    return (self._is_probs and "probs: " or "logits: ") .. shapes.parameter_text(self._param)
  end

  function cls:_set_param(value, is_probs)
    self._param, self._is_probs = value, is_probs
    self[is_probs and "_probs" or "_logits"] = value
  end
end

return probabilities
