-- Random programs of views, in-place writes, hooks, checkpoints and constants, run twice: as written, and by an
-- interpreter that has neither views nor in-place writes (a view is a list of places in its base, a write makes a new
-- base). Losses, gradients and second derivatives must agree, and the gradients with finite differences.
local accelhost = require "accelhost"
local autograd = accelhost.autograd

local ROWS, COLUMNS, LEAVES, STEPS = 3, 4, 2, 14

-- Return a stream of random numbers: programs are the same on every run.
local function stream(seed)
  local state = seed * 7919 + 17
  return function(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return math.floor(state / 65536) % n
  end
end

local unary = {"sin", "tanh", "sigmoid", "cos", "abs", "neg", "atan"}
local in_place = {"tanh_", "sigmoid_", "neg_", "abs_", "zero_"}

-- One random instruction, as data. Its variables are chosen when it runs, alike in both ways.
local function instruction(draw)
  local kinds = {"unary", "binary", "view", "view", "view", "write", "write", "write_from", "write_from", "scale",
    "hook", "checkpoint", "constant", "compare"}
  local made = {kind = kinds[draw(#kinds) + 1]}
  for i = 1, 6 do made[i] = draw(1000) end
  return made
end

local function program(seed)
  local draw, list = stream(seed), {}
  for i = 1, STEPS do list[i] = instruction(draw) end
  return list
end

-- The same without constants, whose influence differences see and gradients do not.
local function smooth_program(seed)
  local list = program(seed)
  for _, s in ipairs(list) do
    if s.kind == "constant" then s.kind = "unary" end
  end
  return list
end

local views = {
  function(t, a, b)
    local dim = a % t:dim()
    local n = t:size(dim)
    local start = b % n
    return t:narrow(dim, start, 1 + a % (n - start))
  end,
  function(t, a) return t:dim() > 1 and t:transpose(0, a % t:dim()) or t:unsqueeze(0) end,
  function(t, a, b)
    if t:dim() < 2 then return t:unsqueeze(a % 2) end
    local dim = a % t:dim()
    return t:select(dim, b % t:size(dim))
  end,
  function(t, a) return t:dim() < 3 and t:unsqueeze(a % (t:dim() + 1)) or t:narrow(0, 0, 1) end,
}

-- As written: a variable is a tensor.
local Plain = {}
Plain.__index = Plain
function Plain.base(_, value) return {handle = value, places = nil} end
function Plain.read(_, v) return v.handle end
function Plain.view(_, v, fn) return {handle = fn(v.handle)} end
function Plain.write(_, v, name, ...) v.handle[name](v.handle, ...) end
function Plain.watch(self, v, choice)
  local handle = v.handle
  if not handle.requires_grad then return end
  local others = {}
  others[1] = handle:register_hook(function(grad)
    self.called = self.called + 1
    for _, other in ipairs(others) do other:remove() end
    if choice % 3 == 0 then collectgarbage() end
    if choice % 2 == 0 then handle:register_hook(function() end) end
    return choice % 5 == 0 and grad * 1 or nil
  end)
  others[2] = handle:register_hook(function(grad)
    self.called = self.called + 1
    return grad:clone()
  end)
end
function Plain.checkpoint(_, fn, ...) return accelhost.utils.checkpoint.checkpoint(fn, ...) end

-- Without views: a variable is a base and the flat places of its elements.
local Places = {}
Places.__index = Places
function Places.base(_, value)
  local places = accelhost.arange(value:numel()):reshape(value:shape())
  return {base = {value = value}, places = places}
end
function Places.read(_, v)
  local flat = v.base.value:reshape(-1):index_select(0, v.places:reshape(-1))
  return flat:reshape(v.places:shape())
end
function Places.view(_, v, fn) return {base = v.base, places = fn(v.places)} end
function Places.write(self, v, name, ...)
  local changed = self:read(v) * 1
  changed[name](changed, ...)
  local whole = v.base.value
  v.base.value = whole:reshape(-1):index_copy(0, v.places:reshape(-1), changed:reshape(-1)):reshape(whole:shape())
end
function Places.watch() end
function Places.checkpoint(_, fn, ...) return fn(...) end

-- The loss of a program at `leaves`.
local function run(machine, list, leaves)
  local vars, bases = {}, {}
  local function new(value)
    local v = machine:base(value)
    vars[#vars + 1], bases[#bases + 1] = v, v
  end
  for i = 1, LEAVES do new(leaves[i] * (1 + 0.1 * i)) end
  local function pick(n) return vars[n % #vars + 1] end
  -- A partner of the same shape, copied mostly: a tensor that a rule saved may not be written later.
  local function partner(v, n)
    local shape = table.concat(machine:read(v):shape(), " ")
    for i = 0, #vars - 1 do
      local other = vars[(n + i) % #vars + 1]
      if other ~= v and table.concat(machine:read(other):shape(), " ") == shape then
        return n % 8 == 0 and machine:read(other) or machine:read(other):clone()
      end
    end
    return machine:read(v):clone()
  end
  local act = {}
  function act.unary(s)
    local name = unary[s[2] % #unary + 1]
    local value = machine:read(pick(s[1])):clone()
    new(value[name](value) * 0.5)
  end
  function act.binary(s)
    local v = pick(s[1])
    local a, b = machine:read(v):clone(), partner(v, s[2])
    new(s[3] % 2 == 0 and a * b or a + b * 0.5)
  end
  function act.view(s)
    local fn = views[s[2] % #views + 1]
    vars[#vars + 1] = machine:view(pick(s[1]), function(t) return fn(t, s[3], s[4]) end)
  end
  function act.write(s) machine:write(pick(s[1]), in_place[s[2] % #in_place + 1]) end
  function act.write_from(s)
    local v = pick(s[1])
    local other = partner(v, s[2])
    local name = ({"add_", "copy_", "mul_", "sub_"})[s[3] % 4 + 1]
    machine:write(v, name, name == "mul_" and other:tanh() or other)
  end
  function act.scale(s) machine:write(pick(s[1]), "mul_", 0.5 + (s[2] % 10) / 10) end
  function act.hook(s) machine:watch(pick(s[1]), s[2]) end
  function act.checkpoint(s)
    local v = pick(s[1])
    new(machine:checkpoint(function(a, b) return (a * b):sin() + b end, machine:read(v):clone(), partner(v, s[2])))
  end
  function act.constant(s) new(machine:read(pick(s[1])):detach() * 0.5) end
  function act.compare(s) machine:write(pick(s[1]), "gt_", 0.1) end
  for _, s in ipairs(list) do act[s.kind](s) end
  local loss = 0
  for i, v in ipairs(bases) do
    local value = machine:read(v)
    local weight = accelhost.arange(value:numel(), {dtype = "float64"}):reshape(value:shape()) * 0.1 + i
    loss = loss + (value * weight):sum()
  end
  return loss
end

local function leaves_for(seed)
  accelhost.manual_seed(seed)
  local leaves = {}
  for i = 1, LEAVES do
    leaves[i] = accelhost.randn({ROWS, COLUMNS}, {dtype = "float64"}):requires_grad_()
  end
  return leaves
end

local function flat(tensors)
  local numbers = {}
  for _, t in ipairs(tensors) do
    for _, x in ipairs(t and t:reshape(-1):tolist() or {}) do numbers[#numbers + 1] = x end
  end
  return numbers
end

local function agree(wanted, got, tolerance, what)
  assert.equal(#wanted, #got, what)
  for i = 1, #wanted do
    local difference = math.abs(wanted[i] - got[i])
    assert.is_true(difference <= tolerance * (1 + math.abs(wanted[i])),
      ("%s, number %d: %.12g, %.12g without views"):format(what, i, got[i], wanted[i]))
  end
end

-- First and second derivatives by autograd.grad.
local function derivatives(machine, list, leaves)
  local loss = run(machine, list, leaves)
  local g = autograd.grad(loss, leaves, {create_graph = true, allow_unused = true})
  local total = loss * 0
  for i, t in ipairs(g) do
    g[i] = t or accelhost.zeros({ROWS, COLUMNS}, {dtype = "float64"})
    total = total + (g[i] * g[i] * 0.1):sum()
  end
  local second = autograd.grad(total, leaves, {allow_unused = true})
  for i = 1, LEAVES do second[i] = second[i] or accelhost.zeros({ROWS, COLUMNS}, {dtype = "float64"}) end
  return {loss:item()}, flat(g), flat(second)
end

local function check(list, leaves)
  local plain = setmetatable({called = 0}, Plain)
  local ok, refused = pcall(function() return run(plain, list, leaves):backward {retain_graph = true} end)
  if not ok then
    -- A refusal is correct where a rule needs the overwritten values.
    assert.matches("was changed in place after it was", tostring(refused))
    return false
  end
  local loss, g, second = derivatives(setmetatable({}, Places), list, leaves)
  local first = {}
  for i, leaf in ipairs(leaves) do first[i] = leaf.grad or accelhost.zeros({ROWS, COLUMNS}, {dtype = "float64"}) end
  agree(g, flat(first), 1e-9, "backward")
  for _, leaf in ipairs(leaves) do leaf.grad = nil end
  local again = run(plain, list, leaves)
  again:backward {retain_graph = true}
  again:backward()
  for i, leaf in ipairs(leaves) do first[i] = leaf.grad and leaf.grad / 2 or first[i] end
  agree(g, flat(first), 1e-9, "backward twice")
  local plain_loss, plain_g, plain_second = derivatives(plain, list, leaves)
  agree(loss, plain_loss, 1e-12, "loss")
  agree(g, plain_g, 1e-9, "gradient")
  agree(second, plain_second, 1e-8, "second derivative")
  return true, g
end

describe("random programs", function()
  it("have the gradients of the same programs without views and in-place writes", function()
    local accepted = 0
    for seed = 1, 150 do
      local ok, result = pcall(check, program(seed), leaves_for(seed))
      if not ok then error(("program %d: %s"):format(seed, tostring(result)), 0) end
      if result then accepted = accepted + 1 end
    end
    assert.is_true(accepted >= 75, ("only %d programs ran"):format(accepted))
  end)

  it("have the gradients of finite differences", function()
    local checked = 0
    for seed = 200, 215 do
      local list, leaves = smooth_program(seed), leaves_for(seed)
      local ok, g = check(list, leaves)
      if ok then
        local function at(leaf, place, step)
          local moved = {}
          for i = 1, LEAVES do moved[i] = leaves[i]:detach():clone() end
          local numbers = moved[leaf]:view(-1)
          numbers[place] = numbers[place] + step
          return run(setmetatable({called = 0}, Plain), list, moved):item()
        end
        local h, misses = 1e-6, 0
        for leaf = 1, LEAVES do
          for place = 0, ROWS * COLUMNS - 1, 5 do
            local slope = (at(leaf, place, h) - at(leaf, place, -h)) / (2 * h)
            local ours = g[(leaf - 1) * ROWS * COLUMNS + place + 1]
            if math.abs(slope - ours) > 1e-5 * (1 + math.abs(ours)) then misses = misses + 1 end
          end
        end
        assert.equal(0, misses, "program " .. seed)
        checked = checked + 1
      end
    end
    assert.is_true(checked >= 5)
  end)
end)
