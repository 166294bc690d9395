--- Perplexity of language models.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local define = require("accelhost.metrics.metric").define

-- A sum of losses and its number of tokens.
local Sum = class.new "Sum"

function Sum:init() self.loss, self.count = 0, 0 end

function Sum:is_empty() return self.count == 0 end

function Sum:state() return C.tensor({{self.loss, self.count}}, {dtype = "float64", device = "cpu"}) end

function Sum:merge(state)
  for _, row in ipairs(state:to("cpu"):tolist()) do self.loss, self.count = self.loss + row[1], self.count + row[2] end
end

local made = {}

--- exp of the mean loss of a token. A batch has `losses`, each a mean over tokens (the loss of a batch, or of each
--- row), and `counts`, the number of tokens of each mean (default 1).
--
--   local metric = metrics.perplexity()
--   metric:add_batch{losses = {math.log(2)}, counts = {30}}
--   metric:add_batch{losses = {math.log(4)}, counts = {10}}
--   print(metric:compute().mean_loss)  --> 0.866...
made.perplexity = define("perplexity", {})
local perplexity = made.perplexity
perplexity._columns, perplexity._more_columns, perplexity._labels = {"losses"}, {"counts"}, {}

function perplexity._new_counts() return Sum() end

function perplexity:_count(columns)
  local counts = columns.counts
  for i, loss in ipairs(columns.losses) do
    local count = counts and counts[i] or 1
    if count < 0 then arguments.fail("perplexity: counts: expected numbers of at least 0, item %d is %g", i, count) end
    if count > 0 then
      self._counts.loss, self._counts.count = self._counts.loss + loss * count, self._counts.count + count
    end
  end
end

function perplexity._result(_, sum)
  local loss = sum.loss / sum.count
  return {perplexity = math.exp(loss), mean_loss = loss}
end

return made
