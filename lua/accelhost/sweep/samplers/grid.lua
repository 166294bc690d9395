--- Grid search.
local BaseSampler = require "accelhost.sweep.samplers.sampler"
local arguments = require "accelhost.util.arguments"
local domain = require "accelhost.sweep.samplers.domain"

---@field combinations integer their number
local GridSampler = BaseSampler:extend "GridSampler"
GridSampler.takes_seed = false

--- Grid search: every combination of values once, in one order: the parameters by name, the last one fastest. A
--- parameter that depends on another is varied only where it is there. Combinations that others had, queued by hand or
--- left of an earlier run, are not repeated. Real numbers need a step.
--
--   local sampler = accelhost.sweep.GridSampler()   -- sampler = "grid"
function GridSampler:init() end

-- A parameter depends on one other at most, so the combinations are those of a forest: those of a parameter are, for
-- each of its values, the product of those of its children that are there then.
local function product_of(nodes)
  local product = 1
  for _, node in ipairs(nodes) do product = product * node.combinations end
  return product
end

local function node_of(parameter, space)
  local node = {parameter = parameter, below = {}, combinations = 0}
  for k = 0, parameter.count - 1 do
    local nodes, params = {}, {[parameter.name] = domain.value_at(parameter, k)}
    for _, child in ipairs(space.parameters) do
      if child.when and child.when.name == parameter.name and domain.is_active(child, params) then
        nodes[#nodes + 1] = node_of(child, space)
      end
    end
    local count = product_of(nodes)
    node.below[k] = {nodes = nodes, count = count, first = node.combinations}
    node.combinations = node.combinations + count
  end
  return node
end

function GridSampler:setup(space)
  BaseSampler.setup(self, space)
  self.roots, self.taken, self.next = {}, {}, 0
  for _, parameter in ipairs(self.space.parameters) do
    if not parameter.count then
      arguments.fail("grid: '%s' is continuous from %s to %s; set a step, or list the values", parameter.name,
        tostring(parameter.low), tostring(parameter.high))
    end
  end
  for _, parameter in ipairs(self.space.parameters) do
    if not parameter.when then self.roots[#self.roots + 1] = node_of(parameter, self.space) end
  end
  self.combinations = product_of(self.roots)
  return self
end

-- Write the values of one combination of `nodes` into params.
local function unrank(nodes, index, params)
  for i = #nodes, 1, -1 do
    local node = nodes[i]
    local rest = index % node.combinations
    index = math.floor(index / node.combinations)
    local k = 0
    while rest >= node.below[k].first + node.below[k].count do k = k + 1 end
    params[node.parameter.name] = domain.value_at(node.parameter, k)
    unrank(node.below[k].nodes, rest - node.below[k].first, params)
  end
end

-- Return the number of the combination of these parameters, nil for none of the grid.
local function rank(nodes, params)
  local index = 0
  for _, node in ipairs(nodes) do
    local k = domain.index_of(node.parameter, params[node.parameter.name])
    local below = k and node.below[k]
    local rest = below and rank(below.nodes, params)
    if not rest then return nil end
    index = index * node.combinations + below.first + rest
  end
  return index
end

--- Mark the parameters of a trial as used, however it ended.
function GridSampler:observe(trial, loss)
  self:skip(trial.params)
end

function GridSampler:skip(params)
  local index = rank(self.roots, params)
  if index then self.taken[index] = true end
  return index ~= nil
end

function GridSampler:suggest(number, running)
  local busy = {}
  for _, trial in ipairs(running or {}) do
    local index = rank(self.roots, trial.params)
    if index then busy[index] = true end
  end
  while self.taken[self.next] do self.next = self.next + 1 end
  local index = self.next
  while self.taken[index] or busy[index] do index = index + 1 end
  if index >= self.combinations then return nil end
  local params = {}
  unrank(self.roots, index, params)
  return params
end

return GridSampler
