--- A step length along a direction, by the strong Wolfe conditions.
local line_search = {}

-- The minimum of the cubic through two points with their slopes, within [low, high].
local function cubic(x1, f1, g1, x2, f2, g2, low, high)
  if not low then low, high = math.min(x1, x2), math.max(x1, x2) end
  local d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
  local square = d1 * d1 - g1 * g2
  if not (square >= 0) then return (low + high) / 2 end
  local d2 = math.sqrt(square)
  local at
  if x1 <= x2 then
    at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
  else
    at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
  end
  if low > at then at = low end
  return high < at and high or at
end

local function between(first, second)
  return cubic(first.t, first.f, first.slope, second.t, second.f, second.slope)
end

-- Steps outwards from 0 until a point is found that satisfies the conditions (then alone), or two around one.
local function bracket(evaluate, start, t, limits)
  local before, now, count = start, evaluate(t), 0
  while count < limits.most do
    if now.f > start.f + limits.c1 * now.t * start.slope or (count > 1 and now.f >= before.f) then
      return {before, now}, count
    end
    if math.abs(now.slope) <= -limits.c2 * start.slope then return {now}, count end
    if now.slope >= 0 then return {before, now}, count end
    local low, high = now.t + 0.01 * (now.t - before.t), now.t * 10
    t = cubic(before.t, before.f, before.slope, now.t, now.f, now.slope, low, high)
    before, now = now, evaluate(t)
    count = count + 1
  end
  return {start, now}, count
end

-- A trial point between two, away from their ends when the last one was near an end too.
local function trial(first, second, stuck)
  local t = between(first, second)
  local low, high = math.min(first.t, second.t), math.max(first.t, second.t)
  local margin = 0.1 * (high - low)
  if math.min(high - t, t - low) >= margin then return t, false end
  if stuck or t >= high or t <= low then
    return math.abs(t - high) < math.abs(t - low) and high - margin or low + margin, false
  end
  return t, true
end

--- Search from `start` (t = 0) with the first step `t`. A point is {t =, f = the loss, gradient =, slope = along the
-- direction}; `evaluate(t)` makes one. Nocedal and Wright, Numerical Optimization, 3.5 and 3.6, with the order of
-- decisions of PyTorch's.
---@param evaluate fun(t: number): table
---@param start table
---@param t number
---@param limits {size: number, tolerance: number, most: integer} the direction's largest element, the smallest change
---@return table point
---@return integer evaluations
function line_search.strong_wolfe(evaluate, start, t, limits)
  local evaluations = 0
  local function count(at)
    evaluations = evaluations + 1
    return evaluate(at)
  end
  limits.c1, limits.c2 = 1e-4, 0.9
  local points, tried = bracket(count, start, t, limits)
  if #points == 1 then return points[1], evaluations end
  local low, high = 1, 2
  if not (points[1].f <= points[2].f) then low, high = 2, 1 end
  local stuck = false
  while tried < limits.most do
    if math.abs(points[2].t - points[1].t) * limits.size < limits.tolerance then break end
    t, stuck = trial(points[1], points[2], stuck)
    local new = count(t)
    tried = tried + 1
    if new.f > start.f + limits.c1 * t * start.slope or new.f >= points[low].f then
      points[high] = new
      if points[1].f <= points[2].f then low, high = 1, 2 else low, high = 2, 1 end
    else
      local done = math.abs(new.slope) <= -limits.c2 * start.slope
      if not done and new.slope * (points[high].t - points[low].t) >= 0 then points[high] = points[low] end
      points[low] = new
      if done then break end
    end
  end
  return points[low], evaluations
end

return line_search
