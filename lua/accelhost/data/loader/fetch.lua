--- Batches made of samples: the same in the loader's own process and in its workers.
local arguments = require "accelhost.util.arguments"
local collate = require "accelhost.data.collate"
local rng_streams = require "accelhost.data.rng_streams"

local fail = arguments.fail
local fetch = {}

-- Return the samples of these indices, each with its own random numbers, and the number of values of each.
local function samples_of(set, batch, seed, repeats)
  local samples, width = {}, nil
  local function append(i, ...)
    local count = select("#", ...)
    if (...) == nil then fail("DataLoader: get(%d) of the data set returned nil", batch[i]) end
    if width and count ~= width then
      fail("DataLoader: get(%d) returned %d values, get(%d) returned %d", batch[i], count, batch[1], width)
    end
    width = count
    samples[i] = count == 1 and (...) or {...}
  end
  for i = 1, #batch do
    rng_streams.of(seed, batch[i], repeats and repeats[i] or 0)
    append(i, set:get(batch[i]))
  end
  return samples, width or 1
end

-- Return the rows of a set that makes whole batches; its random numbers for one are from the first sample's stream.
local function rows_of(set, batch, seed, repeats)
  rng_streams.of(seed, batch[1], repeats and repeats[1] or 0)
  return set:rows(batch)
end

--- A batch of samples that are there: by the loader's own function, else collated.
---@param collate_fn? fun(samples: any[]): any
---@param samples any[]
---@param width integer values of each
---@return any ...
function fetch.finish(collate_fn, samples, width)
  if collate_fn then return collate_fn(samples) end
  return collate.samples(samples, width)
end

--- The batch of these indices.
---@param collate_fn? function
---@param batch integer[]
---@param seed userdata the pass's
---@param repeats? integer[]
---@return any ...
function fetch.batch(set, collate_fn, batch, seed, repeats)
  if type(set.rows) == "function" and not collate_fn then
    return rng_streams.during(rows_of, set, batch, seed, repeats)
  end
  return fetch.finish(collate_fn, rng_streams.during(samples_of, set, batch, seed, repeats))
end

return fetch
