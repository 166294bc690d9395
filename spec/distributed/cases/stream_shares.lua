-- Streams that yield each process its own shard.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local data = accelhost.data

local state = accelhost.PartialState()
local rank, size = state.process_index, state.num_processes
local LENGTHS = {5, 2, 4, 1, 3}

-- File f holds 10 f, 10 f + 1, ...; which files were read is noted.
local Files = data.IterableDataset:extend "Files"
function Files:init(files, counts, read)
  self.files, self.counts, self.read = files or {0, 1, 2, 3, 4}, counts or LENGTHS, read or {}
end
function Files:iter()
  local info = data.get_worker_info()
  return coroutine.wrap(function()
    for i, file in ipairs(self.files) do
      if not info or (i - 1) % info.num_workers == info.id then
        self.read[file] = true
        for k = 0, self.counts[file + 1] - 1 do coroutine.yield(10 * file + k) end
      end
    end
  end)
end
function Files:shard(num_shards, index)
  local mine = {}
  for i = index + 1, #self.files, num_shards do mine[#mine + 1] = self.files[i] end
  return self._class(mine, self.counts, self.read)
end

local Counted = Files:extend "Counted"
function Counted:len()
  local total = 0
  for _, file in ipairs(self.files) do total = total + self.counts[file + 1] end
  return total
end

local function rows_of(loader)
  local rows, valid = {}, {}
  for batch in loader do
    rows[#rows + 1] = table.concat(batch:tolist(), " ")
    valid[#valid + 1] = loader.valid_length
  end
  return rows, valid
end

local function prepared(set, options, config)
  local accelerator = accelhost.Accelerator {dataloader_config = config}
  return accelerator:prepare(data.DataLoader(set, options)), accelerator
end

-- By the number of processes, by rank.
local expected = {
  [2] = {
    {"0 1", "2 3", "4 20", "21 22", "23 40", "41 42"},
    {"10 11", "30 10", "10 11", "10 11", "10 11", "10 11"},
  },
  [3] = {{"0 1", "2 3", "4 30"}, {"10 11", "40 41", "42 10"}, {"20 21", "22 23", "20 21"}},
}
local counting = {[2] = {{2, 2, 2, 2, 2, 2}, {2, 1, 0, 0, 0, 0}}, [3] = {{2, 2, 2}, {2, 2, 1}, {2, 2, 0}}}
local own_files = {[2] = {{0, 2, 4}, {1, 3}}, [3] = {{0, 3}, {1, 4}, {2}}}
local mine, counts, files = expected[size][rank + 1], counting[size][rank + 1], own_files[size][rank + 1]

checks.it("yield each its rows, filled up with its first ones while others have some", function()
  local set = Files()
  local loader = prepared(set, {batch_size = 2})
  for _ = 1, 2 do
    local rows, valid = rows_of(loader)
    checks.same(mine, rows)
    checks.same(counts, valid)
  end
  local read = {}
  for file in pairs(set.read) do read[#read + 1] = file end
  table.sort(read)
  checks.same(files, read, "files read")
end)

checks.it("count every sample once in metrics, and know the last batch", function()
  local loader, accelerator = prepared(Files(), {batch_size = 2})
  local seen, ends = {}, ""
  for batch in loader do
    for _, value in ipairs(accelerator:gather_for_metrics(batch):tolist()) do seen[#seen + 1] = value end
    ends = ends .. (loader.end_of_dataloader and "1" or "0")
  end
  table.sort(seen)
  checks.same({0, 1, 2, 3, 4, 10, 11, 20, 21, 22, 23, 30, 40, 41, 42}, seen)
  checks.same(("0"):rep(#mine - 1) .. "1", ends)
end)

checks.it("end each for itself without even_batches, all with the first one with drop_last", function()
  local real, full = {}, {}
  for i, text in ipairs(mine) do
    if counts[i] > 0 then real[#real + 1] = counts[i] == 2 and text or text:match "^%d+" end
  end
  checks.same(real, (rows_of(prepared(Files(), {batch_size = 2}, {even_batches = false}))))
  for i = 1, size == 2 and 1 or 2 do full[i] = mine[i] end
  checks.same(full, (rows_of(prepared(Files(), {batch_size = 2, drop_last = true}))))
end)

checks.it("know how many batches there are where the shares know their samples", function()
  local loader = prepared(Counted(), {batch_size = 2})
  checks.same(#mine, #loader)
  checks.same(mine, (rows_of(loader)))
  checks.same(size == 2 and 1 or 2, #prepared(Counted(), {batch_size = 2, drop_last = true}))
  local own = 0
  for _, count in ipairs(counts) do own = own + (count > 0 and 1 or 0) end
  checks.same(own, #prepared(Counted(), {batch_size = 2}, {even_batches = false}))
  checks.refused("no len()", function() return #prepared(Files(), {batch_size = 2}) end)
end)

checks.it("are read by workers, too", function()
  checks.same(mine, (rows_of(prepared(Files(), {batch_size = 2, num_workers = 1}))))
  local loader, accelerator = prepared(Files(), {batch_size = 2, num_workers = 2, persistent_workers = true})
  for _ = 1, 2 do
    local seen = {}
    for batch in loader do
      for _, value in ipairs(accelerator:gather_for_metrics(batch):tolist()) do seen[#seen + 1] = value end
    end
    table.sort(seen)
    checks.same({0, 1, 2, 3, 4, 10, 11, 20, 21, 22, 23, 30, 40, 41, 42}, seen)
  end
end)

checks.it("resume at their positions, in as many processes", function()
  for stop = 1, #mine - 1 do
    local loader, saved = prepared(Files(), {batch_size = 2}), nil
    local at = 0
    for _ in loader do
      at = at + 1
      if at == stop then
        saved = loader:state_dict()
        break
      end
    end
    local again = prepared(Files(), {batch_size = 2})
    again:load_state_dict(saved)
    checks.same({unpack(mine, stop + 1)}, (rows_of(again)))
    checks.same({unpack(mine, stop + 1)}, (rows_of(prepared(Files(), {batch_size = 2}):skip_first_batches(stop))))
    checks.refused(("the state counts samples of %d shares, this loader counts samples"):format(size), function()
      data.DataLoader(Files(), {batch_size = 2}):load_state_dict(saved)
    end)
  end
end)

checks.it("are not asked where one process deals, batches are split, or there are fewer than processes", function()
  local Few = Files:extend "Few"
  function Few:init(...)
    Files.init(self, ...)
    self.num_shards = 1
  end
  function Few:shard() error "asked" end -- luacheck: ignore self
  local all = {0, 1, 2, 3, 4, 10, 11, 20, 21, 22, 23, 30, 40, 41, 42}
  local function seen_of(set, batch, config)
    local loader, accelerator = prepared(set, {batch_size = batch}, config)
    local seen = {}
    for x in loader do
      for _, value in ipairs(accelerator:gather_for_metrics(x):tolist()) do seen[#seen + 1] = value end
    end
    return seen
  end
  checks.same(all, seen_of(Few(), 2))
  checks.same(all, seen_of(Files(), 2, {dispatch_batches = true}))
  checks.same(all, seen_of(Files(), 2 * size, {split_batches = true}))
  checks.same("BatchSamplerShard", prepared(Few(), {batch_size = 2}).partition:class_name())
end)

checks.it("may be of a chain, all of whose streams yield shares", function()
  local chain = data.ChainDataset {Files({0, 1, 2}), Files({3, 4})}
  local firsts = {[2] = {{0, 2, 3}, {1, 4}}, [3] = {{0, 3}, {1, 4}, {2}}}
  local own = {}
  for _, file in ipairs(firsts[size][rank + 1]) do
    for k = 0, LENGTHS[file + 1] - 1 do own[#own + 1] = tostring(10 * file + k) end
  end
  checks.same(own, (rows_of(prepared(chain, {}, {even_batches = false}))))
  local Plain = data.IterableDataset:extend "Plain"
  function Plain:iter() return function() end end -- luacheck: ignore self
  checks.same("BatchSamplerShard", prepared(data.ChainDataset {Files(), Plain()}, {}).partition:class_name())
end)

checks.it("must be streams, and may all be empty", function()
  local Wrong = Files:extend "Wrong"
  function Wrong:shard() return 3 end -- luacheck: ignore self
  checks.refused(("Wrong: shard(%d, %d) returned number 3, expected a stream"):format(size, rank), function()
    prepared(Wrong(), {})
  end)
  checks.same({}, (rows_of(prepared(Files({}), {batch_size = 2}))))
end)

checks.finish()
