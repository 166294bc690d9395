--- Shares of a global batch that are not the same for all ranks, such as 2:1.
local proportions = {}

--- How many of `total` samples each rank gets, in proportion to its share: rounded down, and what is left over one by
--- one to those that lost most by that, of equal ones the lower rank.
---@param total integer
---@param shares integer[]
---@return integer[]
function proportions.split(total, shares)
  local sum, left = 0, total
  for _, share in ipairs(shares) do sum = sum + share end
  local counts, order = {}, {}
  for i, share in ipairs(shares) do
    counts[i], order[i] = math.floor(total * share / sum), i
    left = left - counts[i]
  end
  local function lost(i) return total * shares[i] % sum end
  table.sort(order, function(a, b)
    if lost(a) ~= lost(b) then return lost(a) > lost(b) end
    return a < b
  end)
  for i = 1, left do counts[order[i]] = counts[order[i]] + 1 end
  return counts
end

--- The place of a rank's first sample, from 0, and how many it gets.
---@param total integer
---@param shares integer[]
---@param rank integer from 0
---@return integer, integer
function proportions.part(total, shares, rank)
  local first, counts = 0, proportions.split(total, shares)
  for i = 1, rank do first = first + counts[i] end
  return first, counts[rank + 1]
end

--- The shares as a launcher writes them.
---@param shares integer[]
---@return string
function proportions.text(shares) return table.concat(shares, ":") end

--- Parse a text; nil when it is no list of whole numbers above 0 with colons between them.
---@param text string
---@return integer[]?
function proportions.read(text)
  local shares = {}
  for word in (text .. ":"):gmatch "([^:]*):" do
    local share = word:match "^%d+$" and #word <= 6 and tonumber(word)
    if not share or share < 1 then return nil end
    shares[#shares + 1] = share
  end
  return shares
end

return proportions
