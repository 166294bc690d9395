-- luacheck: ignore 512 (loops left by break)
local accelhost = require "accelhost"
local C = require "accelhost._C"
local fixtures = require("spec.support.fixtures").load "data"
local run = require "spec.support.run"
local data = accelhost.data

local function range(count)
  return data.TensorDataset(accelhost.arange(count))
end

local function batches_of(loader)
  local batches = {}
  for batch in loader do batches[#batches + 1] = batch:tolist() end
  return batches
end

local function passes(loader, count)
  local result = {}
  for i = 1, count do result[i] = batches_of(loader) end
  return result
end

local function rest(generator)
  return C.data.slice(C.data.whole_numbers(generator, 2 ^ 24, 1), 0, 1)[1]
end

-- Samples produced by Lua, one at a time.
local Squares = data.Dataset:extend "Squares"
function Squares:init(count) self.count = count end
function Squares:len() return self.count end
function Squares:get(i) return accelhost.full({2}, i), i * i end -- luacheck: ignore self

describe("DataLoader", function()
  describe("order", function()
    it("is PyTorch's when shuffled", function()
      accelhost.manual_seed(0)
      assert.same(fixtures.shuffled.passes, passes(data.DataLoader(range(10), {batch_size = 3, shuffle = true}), 3))
      assert.equal(fixtures.shuffled.rest, rest())
    end)

    it("is PyTorch's when the last batch is dropped", function()
      accelhost.manual_seed(1)
      local loader = data.DataLoader(range(10), {batch_size = 4, shuffle = true, drop_last = true})
      assert.same(fixtures.dropped.passes, passes(loader, 2))
      assert.equal(fixtures.dropped.rest, rest())
    end)

    it("draws one number per pass when it does not shuffle", function()
      accelhost.manual_seed(0)
      assert.same(fixtures.sequential.passes, passes(data.DataLoader(range(10), {batch_size = 4}), 2))
      assert.equal(fixtures.sequential.rest, rest())
    end)

    it("draws from its own generator as PyTorch does", function()
      accelhost.manual_seed(0)
      local generator = accelhost.Generator(5)
      local loader = data.DataLoader(range(10), {batch_size = 4, shuffle = true, generator = generator})
      assert.same(fixtures.own_generator.passes, passes(loader, 3))
      assert.equal(fixtures.own_generator.rest, rest(generator))
    end)

    it("is PyTorch's for 60,000 samples", function()
      accelhost.manual_seed(3)
      local first = data.DataLoader(range(60000), {batch_size = 8, shuffle = true}):batches()()
      assert.same(fixtures.first_of_60000.batch, first:tolist())
      assert.equal(fixtures.first_of_60000.rest, rest())
    end)

    it("follows a batch sampler", function()
      accelhost.manual_seed(7)
      local sampler = data.BatchSampler(data.RandomSampler(10), 4)
      assert.same(fixtures.batch_sampler.passes, passes(data.DataLoader(range(10), {batch_sampler = sampler}), 2))
      assert.equal(fixtures.batch_sampler.rest, rest())
      local listed = data.DataLoader(range(10), {batch_sampler = {{9}, {1, 1}}})
      assert.same({{9}, {1, 1}}, batches_of(listed))
    end)

    it("with a seed is a function of seed and epoch, and draws nothing", function()
      accelhost.manual_seed(0)
      local before = rest()
      accelhost.manual_seed(0)
      local loader = data.DataLoader(range(40), {batch_size = 40, shuffle = true, seed = 6})
      local first, second = batches_of(loader), batches_of(loader)
      assert.equal(before, rest())
      assert.not_same(first, second)
      loader:set_epoch(0)
      assert.same(first, batches_of(loader))
      assert.same(second, batches_of(data.DataLoader(range(40), {batch_size = 40, shuffle = true, seed = 7})))
    end)

    it("is the same for samples from Lua and from tensors", function()
      local tensors = data.TensorDataset(accelhost.arange(10))
      local plain = {get = function(_, i) return i end, len = function() return 10 end}
      accelhost.manual_seed(4)
      local gathered = passes(data.DataLoader(tensors, {batch_size = 3, shuffle = true}), 2)
      accelhost.manual_seed(4)
      assert.same(gathered, passes(data.DataLoader(plain, {batch_size = 3, shuffle = true}), 2))
    end)
  end)

  describe("iteration", function()
    it("yields every column, batch by batch", function()
      local images = accelhost.arange(24):view(4, 2, 3):to("float32")
      local loader = data.DataLoader(data.TensorDataset(images, accelhost.arange(4)), {batch_size = 3})
      local shapes = {}
      for x, y in loader do
        shapes[#shapes + 1] = {x:size(0), x:size(1), x:size(2), y:size(0), x.dtype, y.dtype}
      end
      assert.same({{3, 2, 3, 3, "float32", "int64"}, {1, 2, 3, 1, "float32", "int64"}}, shapes)
      assert.equal(2, loader:len())
    end)

    it("has a batch size of 1 by default", function()
      assert.same({{0}, {1}}, batches_of(data.DataLoader(range(2))))
    end)

    it("accepts PyTorch's positional arguments", function()
      local loader = data.DataLoader(range(5), 2, false)
      assert.same({{0, 1}, {2, 3}, {4}}, batches_of(loader))
    end)

    it("restarts after break", function()
      local loader = data.DataLoader(range(6), {batch_size = 2})
      for batch in loader do
        assert.same({0, 1}, batch:tolist())
        break
      end
      assert.same({{0, 1}, {2, 3}, {4, 5}}, batches_of(loader))
    end)

    it("keeps nested passes over one loader apart", function()
      for _, set in ipairs {range(3), {get = function(_, i) return i end, len = function() return 3 end}} do
        local loader, seen = data.DataLoader(set, {batch_size = 2}), {}
        for outer in loader do
          for inner in loader do seen[#seen + 1] = {outer:tolist()[1], inner:tolist()[1]} end
        end
        assert.same({{0, 0}, {0, 2}, {2, 0}, {2, 2}}, seen)
      end
    end)

    it("survives a batch that is freed in the loop", function()
      local count = 0
      for batch in data.DataLoader(range(5)) do
        batch:free()
        count = count + 1
      end
      assert.equal(5, count)
    end)

    it("collects passes left by break", function()
      local loader = data.DataLoader(data.TensorDataset(accelhost.zeros(64, 40000)), {batch_size = 32})
      collectgarbage()
      local before = accelhost.memory_stats().live
      for _ = 1, 50 do
        for _ in loader do break end
      end
      for _ = 1, 3 do collectgarbage() end -- the iterators, then the passes, then their batches
      assert.is_true(accelhost.memory_stats().live - before < 32 * 40000 * 4 * 8)
    end)

    it("gathers large batches ahead with the same result", function()
      local rows = accelhost.arange(300 * 2000):view(300, 2000):to("float32")
      for _, prefetch in ipairs {0, 1, 5} do
        local loader = data.DataLoader(data.TensorDataset(rows), {batch_size = 160, prefetch = prefetch})
        local total, count = 0, 0
        for batch in loader do
          assert.is_true(batch:eq(rows:narrow(0, count, batch:size(0))):all():item())
          count = count + batch:size(0)
          total = total + 1
        end
        assert.equal(2, total)
        assert.equal(300, count)
      end
    end)

    it("returns its own iterator", function()
      local loader = data.DataLoader(range(3), {batch_size = 2})
      local one, two = loader:batches(), loader:batches()
      assert.same({0, 1}, one():tolist())
      assert.same({0, 1}, two():tolist())
      assert.same({2}, one():tolist())
      assert.is_nil(one())
      assert.is_nil(one())
      assert.same({2}, two():tolist())
    end)

    it("returns an iterator that compiled code does not keep alive", function()
      -- In a process whose compiler has not seen other iterators: it embeds the first closures of a prototype only.
      local result = run.host {"-e", [[
        local accelhost = require "accelhost"
        local set = accelhost.data.TensorDataset(accelhost.arange(600))
        local loader = accelhost.data.DataLoader(set, {batch_size = 2})
        local kept = setmetatable({}, {__mode = "v"})
        local function walk()
          local next_batch = loader:batches()
          kept[1] = next_batch
          for _ = 1, 200 do next_batch() end
        end
        walk()
        collectgarbage()
        print(kept[1])]]}
      run.prints("nil\n", result)
    end)

    it("yields nothing for an empty data set", function()
      assert.same({}, batches_of(data.DataLoader(data.TensorDataset(accelhost.zeros(0, 3)), {batch_size = 2})))
    end)

    it("does not continue a pass of another loader", function()
      local one, two = data.DataLoader(range(3)), data.DataLoader(range(3))
      local batch = one(nil, nil)
      assert.error_matches(function() two(nil, batch) end, "this pass is not known here")
    end)
  end)

  describe("end_of_dataloader", function()
    it("is true while the last batch is processed", function()
      for _, set in ipairs {range(5), Squares(5)} do
        local loader, flags = data.DataLoader(set, {batch_size = 2}), {}
        assert.is_false(loader.active)
        for _ in loader do
          assert.is_true(loader.active)
          flags[#flags + 1] = loader.end_of_dataloader
        end
        assert.same({false, false, true}, flags)
        assert.is_false(loader.end_of_dataloader)
        assert.is_false(loader.active)
      end
    end)

    it("belongs to the innermost running loader", function()
      local train, eval = data.DataLoader(range(2)), data.DataLoader(range(1))
      for _ in train do
        local outer = train.end_of_dataloader
        for _ in eval do
          assert.is_true(eval.active and eval.end_of_dataloader)
          assert.is_false(train.active)
        end
        assert.is_true(train.active)
        assert.is_false(eval.active)
        assert.equal(outer, train.end_of_dataloader)
      end
    end)

    it("is not left behind by break", function()
      local train, eval = data.DataLoader(range(3)), data.DataLoader(range(1))
      local states = {}
      for _ in train do
        states[#states + 1] = eval.active
        for _ in eval do break end
      end
      assert.same({false, false, false}, states)
      assert.is_false(train.active)
    end)

    it("arrives with the remainder", function()
      local loader = data.DataLoader(range(10), {batch_size = 4})
      for _ in loader do assert.equal(2, loader.remainder) end
      loader = data.DataLoader(range(10), {batch_size = 4, drop_last = true})
      for _ in loader do assert.equal(-1, loader.remainder) end
      loader = data.DataLoader(range(10), {batch_size = 4, sampler = {1, 2, 3, 4, 5}})
      for _ in loader do assert.equal(1, loader.remainder) end
    end)
  end)

  describe("data sets in Lua", function()
    it("are collated", function()
      local rows = {}
      for x, y in data.DataLoader(Squares(3), {batch_size = 2}) do
        rows[#rows + 1] = {x:tolist(), y:tolist(), y.dtype}
      end
      assert.same({{{{0, 0}, {1, 1}}, {0, 1}, "int64"}, {{{2, 2}}, {4}, "int64"}}, rows)
    end)

    it("go through the user's collate_fn", function()
      local loader = data.DataLoader(Squares(3), {batch_size = 2, collate_fn = function(samples)
        local sum = 0
        for i = 1, #samples do sum = sum + samples[i][2] end
        return {sum}, #samples
      end})
      local seen = {}
      for sums, count in loader do seen[#seen + 1] = {sums[1], count} end
      assert.same({{1, 2}, {4, 1}}, seen)
      local tensors = data.DataLoader(range(3), {batch_size = 3, collate_fn = function(samples)
        return accelhost.stack(samples, 0):add(1)
      end})
      assert.same({{1, 2, 3}}, batches_of(tensors))
    end)

    it("must not return nil, nor a changing number of values", function()
      local missing = {len = function() return 4 end, get = function(_, i) if i ~= 2 then return i end end}
      assert.error_matches(function() batches_of(data.DataLoader(missing, {batch_size = 4})) end,
        "get%(2%) of the data set returned nil")
      local changing = {len = function() return 2 end, get = function(_, i)
        if i > 0 then return i, i end
        return i
      end}
      assert.same({{0}, {1}}, batches_of(data.DataLoader(changing)))
      assert.error_matches(function() batches_of(data.DataLoader(changing, {batch_size = 2})) end,
        "get%(1%) returned 2 values, get%(0%) returned 1")
    end)

    it("pass their errors on, and the loader works again afterwards", function()
      local broken = true
      local set = {len = function() return 2 end, get = function(_, i)
        if broken then error("no sample " .. i) end
        return i
      end}
      local loader = data.DataLoader(set, {batch_size = 2})
      assert.error_matches(function() batches_of(loader) end, "no sample 0")
      broken = false
      assert.same({{0, 1}}, batches_of(loader))
    end)
  end)

  it("reports which index of a sampler was wrong", function()
    assert.error_matches(function() batches_of(data.DataLoader(range(3), {sampler = {0, 3}})) end,
      "index 3 is out of range for a data set of 3")
    assert.error_matches(function() batches_of(data.DataLoader(range(3), {sampler = {0.5}})) end,
      "returned 0.5 as an index")
    assert.error_matches(function() batches_of(data.DataLoader(range(3), {batch_sampler = {{"a"}}})) end,
      "returned string as an index")
  end)

  it("refuses options that contradict or are unknown", function()
    local function make(options)
      return function() data.DataLoader(range(3), options) end
    end
    assert.error_matches(make {num_workers = 0.5}, "num_workers: expected an integer of at least 0, got number 0.5")
    assert.error_matches(make {batch_sizes = 2}, "unknown option 'batch_sizes'")
    assert.error_matches(make {batch_size = 0}, "batch_size: expected an integer of at least 1, got number 0")
    assert.error_matches(make {shuffle = true, sampler = {1}}, "a sampler excludes shuffle")
    assert.error_matches(make {batch_sampler = {{1}}, batch_size = 2}, "batch_sampler excludes batch_size")
    assert.error_matches(make {seed = 1, generator = accelhost.Generator()}, "a seed or a generator, not both")
    assert.error_matches(make {prefetch = -1}, "prefetch: expected an integer")
    assert.error_matches(make {collate_fn = 3}, "collate_fn: expected a function")
    assert.error_matches(function() data.DataLoader(accelhost.zeros(3)) end, "data.TensorDataset makes one of tensors")
    assert.error_matches(function() data.DataLoader({get = 1}) end, "unknown option 'get'")
    assert.error_matches(function() data.DataLoader(nil) end, "'dataset' is missing")
    assert.error_matches(function()
      data.DataLoader(data.TensorDataset(accelhost.zeros(0)), {shuffle = true})
    end, "at least one sample to shuffle")
  end)

  describe("state_dict", function()
    local function continue_from(make, stop)
      -- Run one loader to `stop` batches of its second pass; a fresh one resumes from its state.
      accelhost.manual_seed(11)
      local loader, all = make(), {}
      for _ in loader do end
      local state, random
      local count = 0
      for batch in loader do
        count = count + 1
        if state then all[#all + 1] = batch:tolist() end
        if count == stop then state, random = loader:state_dict(), accelhost.get_rng_state() end
      end
      for batch in loader do all[#all + 1] = batch:tolist() end
      local next_number = rest()

      accelhost.manual_seed(99)
      local resumed, found = make(), {}
      for _ in resumed do break end
      resumed:load_state_dict(state)
      accelhost.set_rng_state(random)
      for batch in resumed do found[#found + 1] = batch:tolist() end
      if stop < loader:len() then
        for batch in resumed do found[#found + 1] = batch:tolist() end
      end
      assert.same(all, found)
      assert.equal(next_number, rest())
      assert.equal(loader.epoch, resumed.epoch)
      return state
    end

    local function shuffled() return data.DataLoader(range(20), {batch_size = 3, shuffle = true}) end

    it("resumes a shuffled pass to the same batches and draws", function()
      for stop = 1, 7 do continue_from(shuffled, stop) end
    end)

    it("resumes loaders with a generator, a seed, or no shuffling", function()
      for _, stop in ipairs {1, 4, 6} do
        continue_from(function()
          return data.DataLoader(range(20), {batch_size = 3, shuffle = true, generator = accelhost.Generator(8)})
        end, stop)
        continue_from(function()
          return data.DataLoader(range(20), {batch_size = 3, shuffle = true, seed = 8})
        end, stop)
        continue_from(function() return data.DataLoader(range(20), {batch_size = 3}) end, stop)
        continue_from(function() return data.DataLoader(Squares(20), {batch_size = 3, shuffle = true}) end, stop)
      end
    end)

    it("resumes samplers whose draw is the order", function()
      local indices = {}
      for i = 1, 20 do indices[i] = i - 1 end
      continue_from(function()
        return data.DataLoader(range(20), {batch_size = 3, sampler = data.SubsetRandomSampler(indices)})
      end, 2)
    end)

    it("holds numbers and strings only", function()
      for _, value in pairs(continue_from(shuffled, 2)) do
        assert.is_true(type(value) == "number" or type(value) == "string")
      end
    end)

    it("survives being saved again before the pass continues", function()
      local loader = shuffled()
      for _ in loader do break end
      local state = loader:state_dict()
      local other = shuffled()
      other:load_state_dict(state)
      assert.same(state, other:state_dict())
    end)

    it("refuses values that are not states", function()
      assert.error_matches(function() shuffled():load_state_dict({epoch = 1}) end, "expected a loader's state")
      assert.error_matches(function()
        shuffled():load_state_dict({epoch = 0, position = 0, generator = "00"})
      end, "this loader has none")
      assert.error_matches(function()
        shuffled():load_state_dict({epoch = 0, position = 1, draw = "xyz0"})
      end, "hexadecimal")
    end)
  end)

  it("skips the first batches of each pass", function()
    local loader = data.DataLoader(range(6), {batch_size = 2}):skip_first_batches(2)
    assert.same({{4, 5}}, batches_of(loader))
    assert.same({{4, 5}}, batches_of(loader))
    assert.equal(1, loader:len())
    assert.same({}, batches_of(loader:skip_first_batches(5)))
  end)
end)
