--- Batch proportions: parts of a global batch that are not the same for all ranks, such as 2:1.
local proportions = {}

--- Return the number of samples, of `total`, for each rank, in proportion to its number: rounded down, and the rest one
--- by one to those that lost most by that, of equal ones the lower rank.
function proportions.split(total, numbers)
  local sum, left = 0, total
  for _, number in ipairs(numbers) do sum = sum + number end
  local counts, order = {}, {}
  for i, number in ipairs(numbers) do
    counts[i], order[i] = math.floor(total * number / sum), i
    left = left - counts[i]
  end
  local function lost(i) return total * numbers[i] % sum end
  table.sort(order, function(a, b)
    if lost(a) ~= lost(b) then return lost(a) > lost(b) end
    return a < b
  end)
  for i = 1, left do counts[order[i]] = counts[order[i]] + 1 end
  return counts
end

--- Return the place of a rank's first sample, from 0, and its number of samples.
---@param rank integer from 0
---@return integer, integer
function proportions.part(total, numbers, rank)
  local first, counts = 0, proportions.split(total, numbers)
  for i = 1, rank do first = first + counts[i] end
  return first, counts[rank + 1]
end

--- The batch proportions as a launcher writes them.
function proportions.text(numbers) return table.concat(numbers, ":") end

--- Parse a text; nil when it is no list of whole numbers above 0 with colons between them.
---@return integer[]?
function proportions.read(text)
  local numbers = {}
  for word in (text .. ":"):gmatch "([^:]*):" do
    local number = word:match "^%d+$" and #word <= 6 and tonumber(word)
    if not number or number < 1 then return nil end
    numbers[#numbers + 1] = number
  end
  return numbers
end

return proportions
