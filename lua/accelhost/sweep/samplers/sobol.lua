--- Sobol's sequence in up to 64 dimensions: points that fill the unit cube more evenly than random ones, in any number.
--- The first 2^k of them have one in each of 2^k equal slices of every dimension.
--
-- Direction numbers by Joe and Kuo (new-joe-kuo-6.21201), Constructing Sobol Sequences with Better Two-Dimensional
-- Projections, 2008: https://web.maths.unsw.edu.au/~fkuo/sobol/. Points are in the order of Gray's code.
local bit = require "bit"
local stream = require "accelhost.sweep.stream"

local band, bor, bxor, lshift, rshift = bit.band, bit.bor, bit.bxor, bit.lshift, bit.rshift
local sobol = {}

-- For each dimension but the first a primitive polynomial over GF(2), as a number, and the first direction numbers.
local rows = [[
  3:1 7:1,3 11:1,3,1 13:1,1,1 19:1,1,3,3 25:1,3,5,13 37:1,1,5,5,17 41:1,1,5,5,5 47:1,1,7,11,19 55:1,1,5,1,1
  59:1,1,1,3,11 61:1,3,5,5,31 67:1,3,3,9,7,49 91:1,1,1,15,21,21 97:1,3,1,13,27,49 103:1,1,1,15,7,5 109:1,3,1,15,13,25
  115:1,1,5,5,19,61 131:1,3,7,11,23,15,103 137:1,3,7,13,13,15,69 143:1,1,3,13,7,35,63 145:1,3,5,9,1,25,53
  157:1,3,1,13,9,35,107 167:1,3,1,5,27,61,31 171:1,1,5,11,19,41,61 185:1,3,5,3,3,13,69 191:1,1,7,13,1,19,1
  193:1,3,7,5,13,19,59 203:1,1,3,9,25,29,41 211:1,3,5,13,23,1,55 213:1,3,7,3,13,59,17 229:1,3,1,3,5,53,69
  239:1,1,5,5,23,33,13 241:1,1,7,7,1,61,123 247:1,1,7,9,13,61,49 253:1,3,3,5,3,55,33 285:1,3,1,15,31,13,49,245
  299:1,3,5,15,31,59,63,97 301:1,3,1,11,11,11,77,249 333:1,3,1,11,27,43,71,9 351:1,1,7,15,21,11,81,45
  355:1,3,7,3,25,31,65,79 357:1,3,1,1,19,11,3,205 361:1,1,5,9,19,21,29,157 369:1,3,7,11,1,33,89,185
  391:1,3,3,3,15,9,79,71 397:1,3,7,11,15,39,119,27 425:1,1,3,1,11,31,97,225 451:1,1,1,3,23,43,57,177
  463:1,3,7,7,17,17,37,71 487:1,3,1,5,27,63,123,213 501:1,1,3,5,11,43,53,133 529:1,3,5,5,29,17,47,173,479
  539:1,3,3,11,3,1,109,9,69 545:1,1,1,5,17,39,23,5,343 557:1,3,1,5,25,15,31,103,499 563:1,1,1,11,11,17,63,105,183
  601:1,1,5,11,9,29,97,231,363 607:1,1,5,15,19,45,41,7,383 617:1,3,7,7,31,19,83,137,221 623:1,1,1,3,23,15,111,223,83
  631:1,1,5,13,31,15,55,25,161 637:1,1,3,13,25,47,39,87,257
]]

local function directions_of(polynomial, first)
  local degree, directions = #first, {}
  for k = 1, 32 do
    if k <= degree then
      directions[k] = lshift(first[k], 32 - k)
    else
      local v = directions[k - degree]
      v = bxor(v, rshift(v, degree))
      for j = 1, degree - 1 do
        if band(rshift(polynomial, degree - j), 1) == 1 then v = bxor(v, directions[k - j]) end
      end
      directions[k] = v
    end
  end
  return directions
end

local tables

-- The direction numbers of a dimension, from 1.
local function directions(dimension)
  if not tables then
    tables = {{}}
    for k = 1, 32 do tables[1][k] = lshift(1, 32 - k) end
    for polynomial, list in rows:gmatch "(%d+):(%S+)" do
      local first = {}
      for number in list:gmatch "%d+" do first[#first + 1] = tonumber(number) end
      tables[#tables + 1] = directions_of(tonumber(polynomial), first)
    end
  end
  return tables[dimension]
end

--- The largest number of dimensions.
sobol.most = 64

--- A coordinate of a point, in 32 bits.
---@param number integer of the point, from 0 to 2^32 - 1
---@param dimension integer from 1
---@return integer # signed
function sobol.bits(number, dimension)
  local list, low = directions(dimension), bit.tobit(number)
  local code, x = bxor(low, rshift(low, 1)), 0
  for k = 1, 32 do
    if band(rshift(code, k - 1), 1) == 1 then x = bxor(x, list[k]) end
  end
  return x
end

--- Owen's scrambling: each bit is turned round or not by chance, one chance for each way in which the bits before it
--- can be. Points stay as even as they were, and each of them is uniform.
-- Owen, Randomly Permuted (t,m,s)-Nets and (t,s)-Sequences, 1995: https://doi.org/10.1007/978-1-4612-2552-2_19
---@param x integer 32 bits
---@param key integer
---@return integer
function sobol.scramble(x, key)
  local result = 0
  for at = 31, 0, -1 do
    local before = at == 31 and 0 or rshift(x, at + 1)
    local chance = stream.hash(stream.hash(key, at), before)
    result = bor(result, lshift(bxor(band(rshift(x, at), 1), rshift(chance, 31)), at))
  end
  return result
end

return sobol
