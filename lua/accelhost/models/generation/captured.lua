--- A step of one token, captured once and replayed without Lua: the token, its place, and the keys and values of
--- earlier ones are in tensors of fixed size.
local C = require "accelhost._C"
local cache = require "accelhost.models.common.cache"
local hooks = require "accelhost.nn.hooks"

local Captured = {}
Captured.__index = Captured

local LEAST = 8 -- tokens for which a capture pays

-- Are all calls those of the library's classes, without hooks? A replay calls no function.
local function is_plain(model)
  for _, module in ipairs(model:modules()) do
    local forward = module.forward
    if forward ~= getmetatable(module).forward or hooks.watch(module) then return false end
    if not debug.getinfo(forward, "S").source:find "^=accelhost/" then return false end
  end
  return true
end

--- Return a captured step for a run whose prompt was computed; nil where a replay would not be the same.
---@param run generation.Run
---@return table?
function Captured.new(run)
  local o, model = run.o, run.model
  if o.last - run.ids:size(1) < LEAST or not run.past or run.mask or next(run.more) or model.training
    or run.ids.device ~= "cpu" or C.autocast.is_enabled() or not model:_is_capturable(o.last + run.before)
    or not is_plain(model) then
    return nil
  end
  return setmetatable({run = run, most = o.last + run.before}, Captured)
end

-- Record a step for texts of up to `size` tokens.
local function capture(self, size)
  local run = self.run
  local past, last, before = self:past() or run.past, run.ids:size(1) - 1, run.before
  if self.graph then self.graph:close() end
  self.graph, self.size = C.graph.new "cpu", size
  self.position = C.tensor({last + before}, {dtype = "int64"})
  self.token = run.ids:narrow(1, last, 1):clone()
  self.entries = cache.fixed(past, size, self.position)
  local given = {past_key_values = self.entries, use_cache = true, logits_to_keep = 1,
    position_ids = self.position:view(1, 1)}
  self.graph:begin()
  local fine, logits = pcall(function()
    if before > 0 then given.position_ids = given.position_ids - before end
    return run.model(run.model:_step_inputs(given, self.token)).logits:to("float32"):detach()
  end)
  self.graph:finish(fine, {fine and logits or nil})
  if not fine then error(logits, 0) end
  self.logits = logits
  self.graph:inputs {self.token, self.position}
end

--- Compute the last token of the run.
---@param copies? boolean by default, the next call overwrites the result
---@return Tensor logits [rows, words] of the next one
function Captured:forward(copies)
  local last = self.run.ids:size(1) - 1
  local seen = last + self.run.before
  if not self.size or seen >= self.size then
    capture(self, math.min(self.most, math.max(128, 64 * math.ceil((seen + 1) * 1.5 / 64))))
  else
    self.token:copy_(self.run.ids:narrow(1, last, 1))
    self.position:fill_(seen)
    self.graph:replay {self.logits}
  end
  self.seen = seen + 1
  local logits = self.logits:select(1, -1)
  return copies and logits:clone() or logits
end

--- Return the keys and values of all tokens that were computed, nil before the first call of `forward`.
---@return table[]?
function Captured:past()
  if not self.seen then return nil end
  local past = {}
  for i, entry in ipairs(self.entries) do
    past[i] = {entry[1]:narrow(2, 0, self.seen), entry[2]:narrow(2, 0, self.seen), seen = self.seen}
  end
  return past
end

--- Free the graph, and return the keys and values to the run.
function Captured:finish()
  self.run.past = self:past() or self.run.past
  if self.graph then self.graph:close() end
end

return Captured
