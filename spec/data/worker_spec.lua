-- Loaders whose batches are made by processes: the same batches, and nothing left behind however a process ends.
local accelhost = require "accelhost"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local data = accelhost.data
local T = data.transforms

local Mixed = data.Dataset:extend "Mixed"
function Mixed:len() return 23 end -- luacheck: ignore self
function Mixed:get(i) -- luacheck: ignore self
  return accelhost.full({2, 3}, i, {dtype = "float64"}), i,
    {name = "sample " .. i, even = i % 2 == 0, deep = {accelhost.arange(i + 1):sum()}}
end

-- A loader's batches, as text.
local function told(loader)
  local lines = {}
  for images, numbers, rest in loader do
    lines[#lines + 1] = ("%s %s %s %s %s %s"):format(tostring(images), images.dtype, tostring(numbers),
      table.concat(rest.name, ","), tostring(rest.even), tostring(rest.deep[1]))
  end
  return table.concat(lines, "\n")
end

local function with_get(get, count)
  local Own = data.Dataset:extend "Own"
  function Own:len() return count or 6 end -- luacheck: ignore self
  function Own:get(i) return get(i) end -- luacheck: ignore self
  return Own()
end

local function walk(loader)
  local values = {}
  for batch in loader do values[#values + 1] = batch:tolist() end
  return values
end

local function error_of(...)
  local fine, message = pcall(walk, data.DataLoader(...))
  assert(not fine, "no error")
  return message
end

local function is_running(pid)
  local file = io.open("/proc/" .. pid .. "/stat")
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text:match "^%d+ %b() (%a)" ~= nil and text:match "^%d+ %b() (%a)" ~= "Z"
end

-- A sample that is the number of the process that makes it.
local function own_pid()
  local file = io.open "/proc/self/stat"
  local pid = tonumber(file:read "*n")
  file:close()
  return pid
end

describe("A loader with workers", function()
  it("yields the same batches in the same order, whatever their number", function()
    local function passes(options)
      accelhost.manual_seed(4)
      options.batch_size, options.shuffle = 4, true
      local loader = data.DataLoader(Mixed(), options)
      return told(loader) .. told(loader)
    end
    local alone = passes {}
    for _, options in ipairs {
      {num_workers = 1}, {num_workers = 2}, {num_workers = 3, prefetch_factor = 1},
      {num_workers = 2, prefetch_factor = 5, persistent_workers = true}, {num_workers = 9},
    } do
      assert.equal(alone, passes(options))
    end
  end)

  it("reports which batch is the last, how many there are, and its position", function()
    local loader = data.DataLoader(Mixed(), {batch_size = 5, num_workers = 2})
    local last, lengths = {}, {}
    for _ in loader do
      last[#last + 1], lengths[#lengths + 1] = loader.end_of_dataloader, loader.batch_length
    end
    assert.same({false, false, false, false, true}, last)
    assert.same({5, 5, 5, 5, 3}, lengths)
    assert.equal(5, #loader)
    local state, rest
    loader = data.DataLoader(Mixed(), {batch_size = 5, shuffle = true, num_workers = 2})
    for _, numbers in loader do
      if state then rest = numbers break end
      state = loader:state_dict()
    end
    local again = data.DataLoader(Mixed(), {batch_size = 5, shuffle = true, num_workers = 3})
    again:load_state_dict(state)
    assert.same(rest:tolist(), select(2, again:batches()()):tolist())
  end)

  it("draws the same transforms", function()
    local pictures = accelhost.arange(12 * 3 * 6 * 6):view(12, 3, 6, 6):remainder(256):to("uint8")
    local augment = T.Compose {T.RandomCrop(4), T.ColorJitter(0.3), T.RandomHorizontalFlip(), T.ToTensor()}
    local set = with_get(function(i) return augment(pictures:select(0, i)) end, 12)
    local function sum(workers)
      local parts = {}
      for batch in data.DataLoader(set, {batch_size = 5, shuffle = true, seed = 3, num_workers = workers}) do
        parts[#parts + 1] = batch
      end
      return accelhost.cat(parts)
    end
    assert.is_true(accelhost.equal(sum(0), sum(2)))
  end)

  it("seeds each worker's generator as PyTorch does for worker_init_fn, and reports the worker's seed", function()
    accelhost.manual_seed(11)
    local drawn
    local set = with_get(function() return drawn end, 4)
    local options = {num_workers = 2, worker_init_fn = function() drawn = accelhost.randint(0, 1000000, {1}):item() end}
    assert.same({{307421}, {327520}, {307421}, {327520}}, walk(data.DataLoader(set, options))) -- 2.15's
    set = with_get(function()
      local info = data.get_worker_info()
      return accelhost.tensor {info.id, info.num_workers, info.seed - info.id, info.dataset:len()}
    end, 4)
    accelhost.manual_seed(0)
    local infos = walk(data.DataLoader(set, {num_workers = 2}))
    for i = 1, 4 do assert.same({(i - 1) % 2, 2, infos[1][1][3], 4}, infos[i][1]) end
    assert.is_nil(data.get_worker_info())
  end)

  describe("draws in its data set and collate_fn", function()
    local own = accelhost.Generator(7)
    -- One sample: from the default generator, math.random and a Generator of the script.
    local function draw()
      return {accelhost.rand(1):item(), math.random(), accelhost.rand(1, {generator = own}):item()}
    end
    local function drawing(count)
      return with_get(function() return accelhost.tensor(draw(), {dtype = "float64"}) end, count or 8)
    end
    local Stream = data.IterableDataset:extend "Stream"
    function Stream:iter() -- luacheck: ignore self
      local info, first, i = data.get_worker_info(), math.random(), 0
      return function()
        i = i + 1
        return i <= 8 / info.num_workers and accelhost.tensor({first, unpack(draw())}, {dtype = "float64"}) or nil
      end
    end
    local function noisy(samples)
      return accelhost.cat {accelhost.stack(samples):flatten(), accelhost.rand(1), accelhost.tensor {math.random()}}
    end

    local function numbers_of(loader, seen)
      for batch in loader do
        for _, number in ipairs(batch:flatten():tolist()) do seen[#seen + 1] = ("%.9f"):format(number) end
      end
      return seen
    end

    it("other numbers in each worker and pass, from every generator", function()
      for _, persistent in ipairs {false, true} do
        accelhost.set_seed(0)
        local loader = data.DataLoader(drawing(), {num_workers = 4, persistent_workers = persistent})
        local seen, count = numbers_of(loader, numbers_of(loader, {})), 0
        local different = {}
        for _, number in ipairs(seen) do
          if not different[number] then count = count + 1 end
          different[number] = true
        end
        assert.equal(2 * 8 * 3, #seen)
        assert.equal(#seen, count)
      end
    end)

    it("the same numbers whatever the number of workers, and in the next run", function()
      local function run_of(workers)
        accelhost.set_seed(3)
        return numbers_of(data.DataLoader(drawing(), {num_workers = workers, batch_size = 2, collate_fn = noisy}), {})
      end
      assert.same(run_of(1), run_of(3))
    end)

    -- Two passes; a state is saved after `stop` batches of the second one.
    local function batches_of(make, stop, state)
      accelhost.set_seed(5)
      local loader, seen, saved = make(), {}, nil
      if state then
        loader:load_state_dict(state)
      else
        for _ in loader do end -- luacheck: ignore
      end
      for batch in loader do
        seen[#seen + 1] = tostring(batch:to "float64":mul(1e6))
        if #seen == stop then saved = loader:state_dict() end
      end
      return seen, saved
    end

    local options = {
      {"one worker", {num_workers = 1}},
      {"three", {num_workers = 3, shuffle = true}},
      {"persistent ones", {num_workers = 2, persistent_workers = true}},
      {"a collate_fn", {num_workers = 2, batch_size = 2, collate_fn = noisy}},
      {"worker_init_fn", {num_workers = 2, worker_init_fn = function(id) own:manual_seed(id) end}},
      {"a stream", {num_workers = 2}, Stream},
      {"a stream and persistent workers", {num_workers = 2, persistent_workers = true}, Stream},
    }
    for _, way in ipairs(options) do
      it("the undisturbed run's numbers, when resumed within a pass with " .. way[1], function()
        local function make() return data.DataLoader(way[3] and way[3]() or drawing(), way[2]) end
        local undisturbed, state = batches_of(make, 2)
        assert.is_true(#undisturbed >= 4)
        assert.equal(1, state.epoch)
        assert.same({unpack(undisturbed, 3)}, (batches_of(make, nil, state)))
      end)
    end

    it("the same masks of DataCollatorForLanguageModeling after a resume", function()
      local tokenizer = setmetatable({pad_token_id = 0, mask_token_id = 4, pad_token_type_id = 3,
        padding_side = "right", len = function() return 60 end}, {})
      local rows = with_get(function(i)
        local ids = {}
        for k = 1, 30 do ids[k] = 5 + (i * 7 + k) % 50 end
        return {input_ids = ids}
      end, 8)
      local collate = accelhost.text.DataCollatorForLanguageModeling(tokenizer)
      local function labels_of(state, stop)
        accelhost.set_seed(2)
        local loader, seen, saved =
          data.DataLoader(rows, {batch_size = 2, num_workers = 1, collate_fn = collate}), {}, nil
        if state then loader:load_state_dict(state) end
        for batch in loader do
          seen[#seen + 1] = batch.labels:tolist()
          if #seen == stop then saved = loader:state_dict() end
        end
        return seen, saved
      end
      local undisturbed, state = labels_of(nil, 2)
      assert.are_not.same(undisturbed[1], undisturbed[3])
      assert.same({undisturbed[3], undisturbed[4]}, (labels_of(state)))
    end)
  end)

  it("calls worker_init_fn in each", function()
    local made
    local set = with_get(function() return made end, 4)
    local options = {num_workers = 2, worker_init_fn = function(id) made = id + 40 end}
    assert.same({{40}, {41}, {40}, {41}}, walk(data.DataLoader(set, options)))
    options.worker_init_fn = function(id) error("no luck " .. id) end
    assert.matches("in worker 0: .*no luck 0", error_of(set, options))
  end)

  it("collates in the worker", function()
    local set = with_get(function(i) return i end, 4)
    local parent = own_pid()
    local loader = data.DataLoader(set, {batch_size = 2, num_workers = 1, collate_fn = function(samples)
      return {pid = own_pid(), samples = samples, none = nil}
    end})
    for batch in loader do
      assert.are_not.equal(parent, batch.pid)
      assert.equal(2, #batch.samples)
    end
  end)

  it("raises a worker's error, with the worker's traceback", function()
    local function inner(i) error("sample " .. i .. " is rotten") end
    local set = with_get(function(i)
      if i == 3 then inner(i) end
      return i
    end)
    local seen = {}
    local fine, message = pcall(function()
      for batch in data.DataLoader(set, {num_workers = 2}) do seen[#seen + 1] = batch:item() end
    end)
    assert.is_false(fine)
    assert.same({0, 1, 2}, seen)
    assert.matches("^[^\n]*worker_spec.lua:%d+: DataLoader: in worker 1: ", message)
    assert.matches("worker_spec.lua:%d+: sample 3 is rotten\n", message)
    assert.matches("in inner", message)
    assert.matches("sends tensors, numbers, texts, booleans and tables of them: a function",
      error_of(with_get(function() return print end),
        {num_workers = 1, collate_fn = function(samples) return samples end}))
  end)

  it("names a worker that has ended, at once", function()
    local function dying(command)
      return with_get(function(i)
        if i == 3 then command() end
        return i
      end)
    end
    local function kill(signal) return function() os.execute(("kill -%s %d"):format(signal, own_pid())) end end
    assert.matches("worker 1 %(process %d+%) was killed by SIGKILL %(out of memory, or kill %-9%)",
      error_of(dying(kill "KILL"), {num_workers = 2}))
    assert.matches("worker 1 %(process %d+%) was killed by signal 11", error_of(dying(kill "SEGV"), {num_workers = 2}))
    assert.matches("worker 1 %(process %d+%) ended with code 3",
      error_of(dying(function() os.exit(3) end), {num_workers = 2}))
    assert.matches("timed out after 0.2 s: worker 1 ",
      error_of(dying(function() os.execute "sleep 3" end), {num_workers = 2, timeout = 0.2}))
  end)

  it("keeps persistent workers between passes, and else starts new ones", function()
    local set = with_get(own_pid, 2)
    local loader = data.DataLoader(set, {num_workers = 2, persistent_workers = true})
    local first = walk(loader)
    assert.same(first, walk(loader))
    assert.equal(first[1][1], (loader:batches()()):item()) -- batches under way are not mixed up with the next pass
    assert.same(first, walk(loader))
    loader = data.DataLoader(set, {num_workers = 1})
    assert.are_not.same(walk(loader), walk(loader))
  end)

  it("leaves no process when a pass ends, is left or fails", function()
    local set = with_get(function(i)
      if i == 9 then error "nine" end
      return own_pid()
    end, 10)
    local pids = {}
    local function note(batch) pids[#pids + 1] = batch:item() end
    for batch in data.DataLoader(set, {num_workers = 2, sampler = {0, 1, 2}}) do note(batch) end
    for _, pid in ipairs(pids) do assert.is_false(is_running(pid)) end
    pcall(function()
      for batch in data.DataLoader(set, {num_workers = 2}) do note(batch) end
    end)
    for _, pid in ipairs(pids) do assert.is_false(is_running(pid)) end
    do
      local loader = data.DataLoader(set, {num_workers = 3, persistent_workers = true})
      for batch in loader do
        note(batch)
        if #pids > 14 then break end
      end
    end
    assert.is_true(is_running(pids[#pids]))
    collectgarbage()
    collectgarbage()
    for _, pid in ipairs(pids) do assert.is_false(is_running(pid)) end
  end)

  it("restarts a loader's pass while an earlier one is under way", function()
    local loader = data.DataLoader(with_get(function(i) return i end), {num_workers = 2})
    assert.equal(0, (loader:batches()()):item())
    assert.same({{0}, {1}, {2}, {3}, {4}, {5}}, walk(loader))
  end)

  it("works inside a worker's own data set", function()
    local inner = with_get(function(i) return i * 10 end, 3)
    local set = with_get(function(i)
      local sum = i
      for batch in data.DataLoader(inner, {num_workers = 1}) do sum = sum + batch:item() end
      return sum
    end, 4)
    assert.same({{30}, {31}, {32}, {33}}, walk(data.DataLoader(set, {num_workers = 2})))
  end)

  it("checks its options", function()
    local set = with_get(function(i) return i end)
    for _, options in ipairs {{timeout = 1}, {prefetch_factor = 2}, {persistent_workers = true}} do
      assert.error_matches(function() data.DataLoader(set, options) end, "are for num_workers above 0")
    end
    assert.error_matches(function() data.DataLoader(set, {num_workers = -1}) end, "num_workers: expected an integer")
    assert.error_matches(function() data.DataLoader(set, {num_workers = 1000}) end, "at most 256, got 1000")
  end)

  it("has nothing for workers to do where a thread gathers the batches", function()
    local set = data.TensorDataset(accelhost.arange(4))
    local options = {batch_size = 2, num_workers = 2, worker_init_fn = function() error "not called" end}
    assert.same({{0, 1}, {2, 3}}, walk(data.DataLoader(set, options)))
  end)

  it("computes in the workers after the script has used its threads", function()
    local a = accelhost.randn(256, 256)
    local product = a:matmul(a):sum():item()
    local set = with_get(function() return a:matmul(a):sum():item() + accelhost.randn(300000):abs():min():item() end, 2)
    local values = walk(data.DataLoader(set, {num_workers = 2, timeout = 50}))
    assert.is_true(math.abs(values[1][1] - product) < 1e-2 * math.abs(product) + 1)
  end)

  it("can be started while the loader's thread is at work", function()
    local big = data.TensorDataset(accelhost.zeros(64, 40000))
    local small = with_get(function(i) return i end, 2)
    for _ in data.DataLoader(big, {batch_size = 16, prefetch = 3}) do
      assert.same({{0}, {1}}, walk(data.DataLoader(small, {num_workers = 2})))
    end
  end)
end)

-- A script that prints its workers' numbers and then waits in the middle of a pass.
local WAITING = [[
local data = require("accelhost").data
local Slow = data.Dataset:extend "Slow"
function Slow:len() return 1000 end
function Slow:get(i)
  local file = io.open "/proc/self/stat"
  local pid = file:read "*n"
  file:close()
  if i > 3 then os.execute "sleep 0.05" end
  return pid
end
local count = 0
for batch in data.DataLoader(Slow(), {num_workers = 2}) do
  count = count + 1
  if count <= 2 then
    io.stdout:write(batch:item(), "\n")
    io.stdout:flush()
  end
  if count == 4 then %s end
end
]]

-- Files of simulated GPUs and Open MPI there belong to specs that run at the same time.
local function shm_names()
  local pipe = io.popen "ls /dev/shm | grep -vE '^(accelhost-sim-|vader_segment)'"
  local text = pipe:read "*a"
  pipe:close()
  return text
end

describe("A script with workers", function()
  local function check_gone(result)
    local count = 0
    for pid in result.stdout:gmatch "%d+" do
      count = count + 1
      for _ = 1, 1000 do
        if not is_running(pid) then break end
        os.execute "sleep 0.02"
      end
      assert.is_false(is_running(pid))
    end
    assert.is_true(count >= 2)
  end

  it("ends them when it is killed, interrupted, or just ends", function()
    local before = shm_names()
    local own = '(function() local f = io.open "/proc/self/stat"; local p = f:read "*n"; f:close(); return p end)()'
    for _, case in ipairs {
      {"os.execute('kill -9 ' .. " .. own .. ")", 137},
      {"os.execute('(sleep 0.1; kill -INT ' .. " .. own .. " .. ') &')", 130},
      {"os.exit(0)", 0}, {"error 'enough'", 1},
    } do
      local result = run.script(WAITING:format(case[1]), {timeout = 30})
      assert.equal(case[2], result.code)
      check_gone(result)
    end
    assert.equal(before, shm_names())
  end)

  it("shows their output, however the script ends", function()
    local result = run.script([[
local data = require("accelhost").data
local Own = data.Dataset:extend "Own"
function Own:len() return 4 end
function Own:get(i) print("sample " .. i) return i end
for _ in data.DataLoader(Own(), {num_workers = 2, persistent_workers = true}) do io.stderr:write "" end
]], {timeout = 30})
    run.succeeds(result)
    for i = 0, 3 do assert.matches("sample " .. i .. "\n", result.stdout) end
  end)

  it("has them in every rank of a job", function()
    folder.with(function(dir)
      local path = dir .. "/ranks.lua"
      local file = assert(io.open(path, "w"))
      file:write [[
local accelhost = require "accelhost"
local data = accelhost.data
local Own = data.Dataset:extend "Own"
function Own:len() return 12 end
function Own:get(i) return accelhost.tensor {i, data.get_worker_info().id} end
local accelerator = accelhost.Accelerator()
local loader = accelerator:prepare(data.DataLoader(Own(), {batch_size = 2, num_workers = 2}))
local lines = {}
for batch in loader do
  local all = accelerator:gather(batch)
  lines[#lines + 1] = table.concat(all:flatten():tolist(), " ")
end
accelerator:print(table.concat(lines, "\n"))
]]
      file:close()
      local result = run.host({"launch", "--num_processes", "2", path}, {timeout = 40})
      assert.equal("", result.stderr)
      run.succeeds(result)
      run.prints("0 0 1 0 2 0 3 0\n4 1 5 1 6 1 7 1\n8 0 9 0 10 0 11 0\n", result)
    end)
  end)
end)
