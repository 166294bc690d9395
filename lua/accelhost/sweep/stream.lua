--- The random numbers of one suggestion: a function of the study's seed, the trial's number and their purpose, so that
--- a study can be replayed without a record of the numbers drawn before.
--
--   local draws = stream.new(seed, number)
--   draws:uniform()                            -- [0, 1)
--
-- The generator is Chris Doty-Humphrey's sfc32 of PractRand, which needs nothing but sums and shifts of 32 bits.
local bit = require "bit"
local class = require "accelhost.util.class"

local band, bxor, lshift, rol, rshift, tobit = bit.band, bit.bxor, bit.lshift, bit.rol, bit.rshift, bit.tobit
local cos, log, pi, sqrt = math.cos, math.log, math.pi, math.sqrt

local stream = {}
local Stream = class.new "Stream"

local function times(a, b)
  local low, high = band(b, 0xffff), rshift(b, 16)
  return tobit(band(a, 0xffff) * low + lshift(tobit(rshift(a, 16) * low + band(a, 0xffff) * high), 16))
end

--- 32 bits that depend on each of the two words: MurmurHash3's last step (Austin Appleby).
---@param word integer
---@param other integer
---@return integer
function stream.hash(word, other)
  local x = bxor(tobit(word), times(tobit(other), 0x9e3779b1))
  x = times(bxor(x, rshift(x, 16)), 0x85ebca6b)
  x = times(bxor(x, rshift(x, 13)), 0xc2b2ae35)
  return bxor(x, rshift(x, 16))
end

--- The two 32-bit words of an integer below 2^53.
---@return integer low
---@return integer high
function stream.words(number) return tobit(number % 2 ^ 32), tobit(math.floor(number / 2 ^ 32)) end

--- The stream of a trial.
---@param seed integer
---@param number integer the trial's
---@param purpose? integer selects an independent stream; default 0
---@return table
function stream.new(seed, number, purpose)
  local low, high = stream.words(seed)
  local self = Stream()
  self.a, self.b, self.c, self.count = low, stream.hash(high, purpose or 0), tobit(number), 1
  for _ = 1, 15 do self:word() end
  return self
end

--- The next 32 bits.
---@return integer # signed
function Stream:word()
  local a, b, c = self.a, self.b, self.c
  local sum = tobit(a + b + self.count)
  self.a, self.b, self.c = bxor(b, rshift(b, 9)), tobit(c + lshift(c, 3)), tobit(rol(c, 21) + sum)
  self.count = tobit(self.count + 1)
  return sum
end

--- The next number in [0, 1), of 53 bits.
---@return number
function Stream:uniform()
  return (rshift(self:word(), 5) * 2 ^ 26 + rshift(self:word(), 6)) / 2 ^ 53
end

--- The next integer from 0 to n - 1.
function Stream:below(n) return math.floor(self:uniform() * n) end

--- The next number of the normal distribution with mean 0 and deviation 1.
---@return number
function Stream:normal()
  local radius = sqrt(-2 * log(1 - self:uniform()))
  return radius * cos(2 * pi * self:uniform())
end

return stream
