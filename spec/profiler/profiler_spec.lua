local accelhost = require "accelhost"
local run = require "spec.support.run"
local profiler = accelhost.profiler

local function read_trace(path)
  local file = assert(io.open(path))
  local trace = accelhost.json.decode(file:read "*a")
  file:close()
  return trace
end

local function is_whole(value) return type(value) == "number" and value % 1 == 0 and value >= 0 and value < 2 ^ 32 end

local function fields_of(event) return table.concat(require("accelhost.util.arguments").sorted_keys(event), " ") end

-- Check an event that names a process or a track: without a time, which importers may refuse.
local function check_metadata(event, named)
  assert(event.name == "process_name" or event.name == "thread_name", event.name)
  assert.equal(event.name == "thread_name" and "args name ph pid tid" or "args name ph pid", fields_of(event))
  assert.equal("name", fields_of(event.args))
  assert(#event.args.name > 0)
  local track = event.tid or "process"
  assert.is_nil(named[track])
  named[track] = event.args.name
end

-- Times as viewers read them: nanoseconds of the decimals, rounded, or cut off as Perfetto does it with a double.
local clocks = {function(us) return math.floor(us * 1000 + 0.5) end, function(us) return math.floor(us * 1000) end}

-- By either clock events of a track are in order, and nested or disjoint: others would be dropped.
local function check_place(event, clock, tracks, i)
  local track = tracks[event.tid] or {last = 0}
  tracks[event.tid] = track
  local start = clock(event.ts)
  local stop = start + clock(event.dur)
  assert(start >= track.last, "event " .. i .. " is out of order")
  track.last = start
  while #track > 0 and track[#track] <= start do table.remove(track) end
  assert(#track == 0 or stop <= track[#track], "event " .. i .. " reaches beyond the one around it")
  track[#track + 1] = stop
end

-- The rules of the trace event format, as far as complete events and metadata go, and those of Perfetto's importer;
-- returns the events of each category and the names of the tracks.
local function check(trace, rank)
  local tracks, kinds, named = {{}, {}}, {}, {}
  assert.equal("ms", trace.displayTimeUnit)
  for i, event in ipairs(trace.traceEvents) do
    assert.equal(rank, event.pid)
    assert.equal("string", type(event.name))
    assert(event.tid == nil or is_whole(event.tid))
    if event.ph == "M" then
      check_metadata(event, named)
    else
      assert.equal("X", event.ph)
      assert.equal((event.args and "args " or "") .. "cat dur name ph pid tid ts", fields_of(event))
      assert(named[event.tid], "a track without a name")
      assert(event.ts >= 0 and event.dur >= 0, "event " .. i)
      for k, clock in ipairs(clocks) do check_place(event, clock, tracks[k], i) end
      for _, value in pairs(event.args or {}) do assert(type(value) == "string" or is_whole(math.abs(value))) end
      kinds[event.cat] = kinds[event.cat] or {}
      table.insert(kinds[event.cat], event)
    end
  end
  assert.matches("^rank %d+ %(pid %d+%)$", named.process)
  return kinds, named
end

local function launch(ranks, path)
  local result = run.host({"launch", "--num_processes", ranks, "spec/profiler/cases/trace.lua", path}, {timeout = 60})
  assert.equal("", result.stderr)
  run.prints("1\t6\t3\t6\t3\t3\t3\t3\n", result)
end

describe("accelerator:profile", function()
  local folder
  before_each(function() folder = os.tmpname() .. ".traces" end)
  after_each(function()
    os.execute(("rm -rf %s %s"):format(run.quote(folder), run.quote((folder:gsub("%.traces$", "")))))
  end)

  it("writes a trace of ops, nodes, waits and ranges that is whole", function()
    launch(1, folder .. "/of/one")
    local kinds = check(read_trace(folder .. "/of/one/profile_0.json"), 0)
    assert.equal(3, #kinds.optimizer)
    assert.equal('forward "pass"', (function()
      for _, event in ipairs(kinds.range) do
        if not event.name:find "ProfilerStep" then return event.name end
      end
    end)())
    local linear
    for _, event in ipairs(kinds.op) do
      if event.name == "linear" then linear = linear or event end
    end
    assert.equal("[[16, 784], [32, 784], [32]]", linear.args.shapes)
    assert.matches("trace%.lua:20$", linear.args.site)
    assert.equal("0 (Linear)", linear.args.module)
    assert(#kinds.backward > 9 and #kinds.loader >= 3)
  end)

  it("records the accelerator's configured activities, or those of its arguments", function()
    local kwargs = accelhost.ProfileKwargs {record_shapes = true}
    local own = accelhost.Accelerator {kwargs_handlers = {kwargs}}
    local function shapes(...)
      local prof = own:profile(...)
      for _, event in ipairs(prof:events()) do
        if event.name == "mm" then return event.shapes end
      end
      error "no product"
    end
    local function product() accelhost.ones(2, 3):mm(accelhost.ones(3, 4)) end
    assert.equal("[[2, 3], [3, 4]]", shapes(product))
    assert.equal("[[2, 3], [3, 4]]", shapes(kwargs, product))
    assert.equal("", shapes({}, product))
    assert.error_matches(function() accelhost.ProfileKwargs {with_flops = true} end, "with_flops: expected false")
  end)

  it("writes a file for each rank, with collectives and buckets on their own tracks", function()
    launch(2, folder)
    local taken, overlaps = {}, false
    for rank = 0, 1 do
      local kinds, named = check(read_trace(("%s/profile_%d.json"):format(folder, rank)), rank)
      -- Merged into one file they stay apart: viewers know a track by its number.
      for track in pairs(named) do
        assert(track == "process" or not taken[track], "two ranks have a track of one number")
        taken[track] = true
      end
      assert(#kinds.collective > 3)
      assert.equal(0, #kinds.bucket % 3)
      assert(#kinds.bucket >= 6)
      for _, bucket in ipairs(kinds.bucket) do
        assert(bucket.args.bytes > 0)
        assert.matches("^bucket %d$", named[bucket.tid])
        for _, node in ipairs(kinds.backward) do
          overlaps = overlaps or (node.name ~= "backward" and node.ts < bucket.ts + bucket.dur
            and bucket.ts < node.ts + node.dur)
        end
      end
    end
    -- On one rank at least: the other's buckets are reduced as it posts them if it always arrives later.
    assert(overlaps, "no bucket is under way while a node runs")
  end)

  it("reports wrong options", function()
    local accelerator = accelhost.Accelerator()
    os.execute("mkdir " .. run.quote(folder))
    assert.error_matches(function() accelerator:profile(accelhost.AutocastKwargs(), print) end,
      "profile: expected options as a table and a function")
    assert.error_matches(function() accelerator:profile({with_shapes = true}, print) end,
      "profile: unknown option 'with_shapes'")
    assert.error_matches(function() accelerator:profile({record_shapes = true}) end,
      "profile: fn: expected a function or something callable, got nil")
    assert.error_matches(function() accelerator:profile({with_flops = true}, print) end, "with_flops: operations are")
    assert.error_matches(function() accelerator:profile({activities = {"gpu"}}, print) end,
      'activities: expected "cpu" or "cuda", got[^\n]*\'gpu\'')
  end)
end)

describe("profiler.profile", function()
  local x = accelhost.ones(8, 8)

  it("adds up calls by name and by shapes", function()
    local prof = profiler.profile({record_shapes = true, profile_memory = true}, function()
      for _ = 1, 3 do x:matmul(x) end
      x:narrow(0, 0, 4):matmul(x)
    end)
    local rows = prof:key_averages()
    assert.equal("matmul", rows[1].key)
    assert.equal(4, rows[1].count)
    assert.equal(2, #prof:key_averages(true) - #rows + 1)
    assert(rows[1].cpu_time_total >= rows[1].self_cpu_time_total and rows[1].self_cpu_time_total > 0)
    local text = rows:table {sort_by = "cpu_time_total", row_limit = 1}
    assert.matches("Name  Self CPU %%  +Self CPU  CPU total %%  CPU total  CPU time avg", text)
    assert.matches("CPU Mem  Self CPU Mem  # of Calls", text)
    assert.matches("\n *matmul .* 4\n%-", text)
    assert.matches("Input Shapes", prof:key_averages(true):table())
    assert.error_matches(function() rows:table {sort_by = "name"} end, "sort_by")
  end)

  it("reports the kernel of an op: a library's, in which dtype, or its own", function()
    local result = run.script([[
      local accelhost = require "accelhost"
      local prof = accelhost.profiler.profile({}, function()
        local layer, x = accelhost.nn.Linear(256, 128), accelhost.ones(64, 256)
        layer(x):relu()
        accelhost.autocast("cpu", function() return layer(x) end)
        layer:bfloat16()(x:bfloat16())
        accelhost.ones(2, 3):matmul(accelhost.ones(3, 2))
        accelhost.ones(2, 3, {dtype = "float64"}):matmul(accelhost.ones(3, 2, {dtype = "float64"}))
        accelhost.linalg.inv(accelhost.eye(3))
        x:view(-1)
      end)
      for _, event in ipairs(prof:events()) do
        if event.kind == "op" then print(event.name, event.kernel) end
      end
      local path = os.tmpname()
      prof:export_chrome_trace(path)
      for line in io.lines(path) do print(line) end
      os.remove(path)]], {env = {ACCELHOST_BF16 = "native"}})
    local text = result.stdout
    assert.matches("\nlinear\toneDNN float32 matmul [%w:_]+\n", text)
    assert.matches("\nrelu\town relu float32\n", text)
    assert.matches("\nmatmul\topenblas sgemm\n.*\nmatmul\topenblas dgemm\n.*\nmatrix_inverse\tLAPACK float32\n", text)
    assert.matches("\nview\tnil\n", text)
    assert.matches('"name": "relu".-"args": {"kernel": "own relu float32"}', text)
    -- With the processor's own bfloat16, where it has some.
    assert.matches("\nlinear\toneDNN [%w]+ matmul [%w:_]+\n.*\nlinear\toneDNN [%w]+ matmul", text)
    local report = run.host({"env"}, {env = {ACCELHOST_BF16 = "native"}}).stdout
    local pairs_of_items = report:find("avx512_bf16", 1, true) ~= nil
    local native = pairs_of_items or report:find("amx_bf16", 1, true) ~= nil
    assert.equal(native, text:find("\nlinear\toneDNN bfloat16", 1, true) ~= nil, report)
    assert.equal(pairs_of_items, text:find("\nlinear\town product of rounded float32", 1, true) ~= nil, report)
  end)

  it("counts a memory that is kept", function()
    local kept
    local prof = profiler.profile({profile_memory = true}, function() kept = accelhost.zeros(1000) end)
    assert.equal(1000, kept:numel())
    assert(prof:key_averages()[1].cpu_memory_usage >= 4000)
  end)

  it("prints the memory of a step at its peak, by kind and by op", function()
    local model = accelhost.nn.Linear(300, 400)
    local optimizer = accelhost.optim.AdamW(model:parameters())
    local function step()
      local hidden = model(accelhost.randn(600, 300)):tanh()
      hidden:square():sum():backward()
      optimizer:step()
      optimizer:zero_grad()
    end
    step()
    local prof = profiler.profile({profile_memory = true}, step)
    local text = prof:memory_table {model = model, optimizer = optimizer}
    assert.matches("parameters +0%.46 MB +2\n", text)
    assert.matches("optimizer state +0%.92 MB", text)
    local saved = tonumber(text:match "saved for backward +([%d.]+) MB")
    assert.is_true(saved > 0.9 and saved < 4, text)
    assert.matches("\ntanh +[%d.]+ MB +1", text)
    local total = tonumber(text:match "total +([%d.]+) MB")
    local sum = 0
    for bytes in text:match "^(.-)\ntotal":gmatch "([%d.]+) MB" do sum = sum + tonumber(bytes) end
    assert.is_true(math.abs(total - sum) < 0.05 and total > 2, text)
    assert.has_error(function() profiler.profile({}, step):memory_table() end,
      "profile:memory_table: nothing was recorded; set profile_memory = true")
  end)

  it("subtracts a range's time from its enclosing range", function()
    local prof = profiler.profile({}, function()
      profiler.record_function("outer", function()
        return profiler.record_function("inner", function() x:matmul(x) end)
      end)
    end)
    local rows = {}
    for _, row in ipairs(prof:key_averages()) do rows[row.key] = row end
    assert(rows.outer.cpu_time_total >= rows.inner.cpu_time_total)
    assert(math.abs(rows.outer.self_cpu_time_total - (rows.outer.cpu_time_total - rows.inner.cpu_time_total)) < 1e-6)
  end)

  it("passes on results and errors of functions, and has stopped then", function()
    assert.same({1, nil, 3}, {profiler.record_function("r", function(...) return ... end, 1, nil, 3)})
    local prof
    assert.error_matches(function()
      profiler.profile({}, function(p)
        prof = p
        profiler.record_function("r", function() error("no luck") end)
      end)
    end, "no luck")
    assert.equal("r", prof:key_averages()[1].key)
    profiler.profile({}, function() end)
  end)

  it("keeps the newest events and reports how many it has lost", function()
    local result = run.script([[
      local accelhost = require "accelhost"
      local x = accelhost.ones(2)
      local prof = accelhost.profiler.profile({max_events = 100}, function()
        for _ = 1, 300 do x:neg() end
        x:abs()
      end)
      local events = prof:events()
      print(#events, events[1].name, events[100].name)]])
    run.prints("100\tneg\tabs\n", result)
    assert.matches("profile: 201 of the oldest events are lost", result.stderr)
  end)

  it("records only one profile at a time, and reports when nothing was recorded", function()
    profiler.profile({}, function()
      assert.error_matches(function() profiler.profile({}, function() end) end, "another profile records")
    end)
    local prof = profiler.profile {}
    assert.error_matches(function() prof:key_averages() end, "nothing was recorded yet")
    assert.error_matches(function() prof:step() end, "between start%(%) and stop%(%)")
    assert.error_matches(function() prof:stop() end, "has not been started")
  end)

  it("calls on_trace_ready after each round of its schedule", function()
    local seen = {}
    local prof = profiler.profile {
      schedule = profiler.schedule {wait = 1, warmup = 1, active = 2, repeats = 2},
      on_trace_ready = function(p) seen[#seen + 1] = p.step_num .. ":" .. #p:events() end,
    }
    prof:start()
    for _ = 1, 10 do
      x:neg()
      prof:step()
    end
    prof:stop()
    -- Two ops and two steps in each.
    assert.same({"4:4", "8:4"}, seen)
  end)
end)

describe("profiler.schedule", function()
  local function actions(options, count)
    local at, list = profiler.schedule(options), {}
    for step = 0, count - 1 do list[step + 1] = at(step):gsub("record_and_save", "save") end
    return table.concat(list, " ")
  end

  -- torch.profiler.schedule of PyTorch 2.15
  it("prints PyTorch's columns", function()
    assert.equal("none warmup record save none warmup record save none none",
      actions({wait = 1, warmup = 1, active = 2, repeats = 2}, 10))
    assert.equal("none none none warmup save none none warmup save none",
      actions({wait = 2, warmup = 1, active = 1, ["repeat"] = 0, skip_first = 1}, 10))
    assert.equal("none none warmup save none none none warmup save none none none",
      actions({wait = 3, warmup = 1, active = 1, skip_first = 2, skip_first_wait = 1}, 12))
  end)

  it("refuses invalid arguments", function()
    assert.error_matches(function() profiler.schedule {wait = 1, warmup = 1, active = 0} end, "active")
    assert.error_matches(function() profiler.schedule {wait = -1, warmup = 1, active = 1} end, "wait")
    assert.error_matches(function() profiler.schedule {wait = 1, warmup = 1, active = 1}(-1) end, "number of a step")
  end)
end)
