-- Rows one after the other: data.RowStream, from files and from tables.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local data = accelhost.data

local function stream(kind, files, options)
  options = options or {}
  options.data_files, options.split, options.streaming = files, "train", true
  return data.load_dataset(kind, options)
end

local function rows(set, name)
  local list = {}
  for row in set:iter() do list[#list + 1] = name and row[name] or row end
  return list
end

-- Rows with n from `from` to `to`, and a text that fills more than a line now and then.
local function csv_of(from, to)
  local lines = {"n,text"}
  for n = from, to do lines[#lines + 1] = ('%d,"text %d%s"'):format(n, n, n % 7 == 0 and "\nof two lines" or "") end
  return table.concat(lines, "\n") .. "\n"
end

local function numbers(from, to)
  local list = {}
  for n = from, to do list[#list + 1] = n end
  return list
end

local function sorted(list)
  table.sort(list)
  return list
end

local function table_of(count, shards)
  return data.Table {n = numbers(0, count - 1)}:to_iterable_dataset(shards or 1)
end

local function even(row) return row.n % 2 == 0 end

describe("A stream of a file's rows", function()
  it("yields the rows of a table of the same file, whatever its kind and wherever its blocks end", function()
    folder.with(function(dir)
      local long = ("x"):rep(300000)
      local files = {
        csv = csv_of(1, 3500) .. '9,"' .. long .. '"\n',
        json = '{"n": 1, "text": "a"}\n\n{"text": "' .. long .. '", "n": 2, "deep": {"k": [1, null]}}\n{"n": -3}',
        text = "one\n\n" .. long .. "\r\ntwo",
      }
      for kind, content in pairs(files) do
        local path = write(dir .. "/rows", content)
        local whole = data.load_dataset(kind, {data_files = path, split = "train"})
        local found = rows(stream(kind, path))
        assert.equal(#whole, #found)
        for i = 0, #whole - 1 do assert.same(whole[i], found[i + 1]) end
      end
    end)
  end)

  it("may be an array of JSON over many blocks, on one line or on many", function()
    folder.with(function(dir)
      local items = {}
      for n = 1, 9000 do items[n] = ('{"n": %d, "s": "\\u00e9 [{%s"}'):format(n, ("y"):rep(n % 90)) end
      for _, between in ipairs {",", " ,\n "} do
        local path = write(dir .. "/rows.json", " \n[" .. table.concat(items, between) .. "]\n")
        local found = rows(stream("json", path))
        assert.same({9000, 9000, "é [{y"}, {#found, found[9000].n, found[1].s})
        write(path, "[" .. table.concat(items, between) .. ",")
        check.raises("the array is not closed", function() rows(stream("json", path)) end)
      end
    end)
  end)

  it("reads gzip files, and reports truncated ones", function()
    folder.with(function(dir)
      local path = write(dir .. "/rows.csv", csv_of(1, 5000))
      assert(os.execute("gzip -k " .. path) == 0)
      assert.same(rows(stream("csv", path)), rows(stream("csv", path .. ".gz")))
      local packed = assert(io.open(path .. ".gz", "rb")):read "*a"
      write(path .. ".gz", packed:sub(1, #packed - 100))
      check.raises("rows.csv.gz': damaged gzip data (it ends early)", function()
        rows(stream("csv", path .. ".gz"))
      end)
      write(path .. ".gz", packed:sub(1, 100) .. "????????" .. packed:sub(109))
      check.raises("rows.csv.gz': damaged gzip data", function() rows(stream("csv", path .. ".gz")) end)
    end)
  end)

  it("knows its columns from the first rows, and keeps to them", function()
    folder.with(function(dir)
      local path = write(dir .. "/rows.csv", "n,x,flag,text\n1,0.5,true,a\n9007199254740993,2,false,\n")
      local set = stream("csv", path)
      assert.same({"n", "x", "flag", "text"}, set.column_names)
      assert.same({n = "int64", x = "float64", flag = "bool", text = "string"}, set:features())
      local found = rows(set)
      assert.same({n = 1, x = 0.5, flag = true, text = "a"}, found[1])
      assert.equal("tensor(9007199254740993)", tostring(found[2].n))
      assert.same({2, false, ""}, {found[2].x, found[2].flag, found[2].text})
      assert.equal("RowStream(columns=[n, x, flag, text])", tostring(set))
    end)
  end)

  it("reports the file, the line and the column of a value that does not fit", function()
    folder.with(function(dir)
      local path, more = dir .. "/a.csv", dir .. "/b.csv"
      write(path, csv_of(1, 12000))
      write(more, 'n,text\n1,"a\nb"\n\n2.5,c\n')
      check.raises("b.csv': line 5: column 'n': expected a whole number of 64 bits, got '2.5'; features = {...} sets "
        .. "a column's type", function() rows(stream("csv", {path, more})) end)
      assert.equal(2.5, rows(stream("csv", {path, more}, {features = {n = "float64"}}))[12002].n)
      write(more, "n,text\n1,a\n1,b,c\n")
      check.raises("b.csv': line 3: 3 fields, expected 2", function() rows(stream("csv", {path, more})) end)
      write(more, "n,words\n1,a\n")
      check.raises("b.csv': line 1: column 1 is 'words', in the first file 'text'",
        function() rows(stream("csv", {path, more})) end)
      write(more, "n,text\n3000000000,a\n")
      check.raises("b.csv': line 2: column 'n': expected a whole number of 32 bits, got '3000000000'",
        function() rows(stream("csv", {path, more}, {features = {n = "int32"}})) end)
      check.raises("/none.csv': cannot read: No such file", function() stream("csv", dir .. "/none.csv") end)
      check.raises("'" .. dir .. "': cannot read: it is no regular file", function() stream("csv", dir) end)
      local lines = {}
      for i = 1, 11000 do lines[i] = '{"a": 1}' end
      lines[10999] = '{"a": 1, "late": 2}'
      path = write(dir .. "/rows.json", table.concat(lines, "\n"))
      check.raises("rows.json': line 10999: column 'late' is not in the first rows, which define a stream's columns",
        function() rows(stream("json", path)) end)
      local found = rows(stream("json", path, {features = {late = "int64"}}))
      assert.same({nil, 2}, {found[1].late, found[10999].late})
      lines[10999] = '{"a": "x"}'
      write(path, table.concat(lines, "\n"))
      check.raises("rows.json': line 10999: column 'a': expected a whole number of 64 bits, got 'x'",
        function() rows(stream("json", path)) end)
    end)
  end)

  it("holds a block, not the file", function()
    folder.with(function(dir)
      local line = ("word "):rep(200) .. "\n"
      local path = write(dir .. "/rows.txt", line:rep(20000)) -- 20 MB
      local set, count = stream("text", path), 0
      collectgarbage()
      local function resident()
        for text in io.lines "/proc/self/status" do
          local kb = text:match "^VmRSS:%s*(%d+)"
          if kb then return tonumber(kb) end
        end
      end
      local before, most = resident(), 0
      for row in set:iter() do
        count = count + #row.text
        if count % 1000000 < 1000 then most = math.max(most, resident()) end
      end
      assert.equal(20000 * 1000, count)
      assert.is_true(most - before < 12000, ("%d KB more"):format(most - before))
    end)
  end)
end)

describe("A stream's methods", function()
  it("compute columns of rows and of batches", function()
    local set = table_of(5)
    assert.same({{n = 0, d = 0}, {n = 1, d = 2}}, rows(set:map(function(row) return {d = 2 * row.n} end):take(2)))
    assert.same({{d = 3}}, rows(set:skip(3):map(function(n) return {d = n} end,
      {input_columns = "n", remove_columns = {"n"}}):take(1)))
    assert.same({10, 11, 12, 13, 14}, rows(set:map(function(_, i) return {n = i + 10} end,
      {with_indices = true}), "n"))
    local sizes = {}
    local doubled = set:map(function(batch)
      sizes[#sizes + 1] = batch.n:size(0)
      return {n = accelhost.cat({batch.n, batch.n + 100}, 0)}
    end, {batched = true, batch_size = 2, remove_columns = "n"})
    assert.same({0, 1, 100, 101, 2, 3, 102, 103, 4, 104}, rows(doubled, "n"))
    assert.same({2, 2, 1}, sizes)
    assert.same({0, 1, 2, 3}, rows(set:map(function(batch) return {m = batch.n} end,
      {batched = true, batch_size = 2, drop_last_batch = true}), "m"))
    check.raises("map: fn returned 1 rows for 5, which column 'n' does not fit; remove_columns removes it", function()
      rows(set:map(function() return {m = {1}} end, {batched = true}))
    end)
    check.raises("map: fn: expected a table of values by column, got nil", function() rows(set:map(function() end)) end)
    check.raises("map: unknown option 'num_proc'", function() set:map(even, {num_proc = 2}) end)
    check.raises("map: features: column 'm': unknown type 'int'",
      function() set:map(even, {features = {m = "int"}}) end)
  end)

  it("choose rows", function()
    assert.same({0, 2, 4}, rows(table_of(6):filter(even), "n"))
    assert.same({0, 3}, rows(table_of(6):filter(function(_, i) return i % 3 == 0 end, {with_indices = true}), "n"))
    assert.same({4, 5}, rows(table_of(6):filter(function(batch) return batch.n:gt(3) end,
      {batched = true, batch_size = 4}), "n"))
    assert.same({2, 3}, rows(table_of(6):skip(2):take(2), "n"))
    assert.same({}, rows(table_of(6):skip(7), "n"))
    assert.same({}, rows(table_of(6):take(0), "n"))
    check.raises("take: n: expected an integer of at least 0, got number -1", function() table_of(6):take(-1) end)
    check.raises("filter: fn: expected 6 times true or false", function()
      rows(table_of(6):filter(function() return {true} end, {batched = true}))
    end)
  end)

  it("choose and rename columns", function()
    local set = data.Table({a = {1}, b = {"x"}}, {"a", "b"}):to_iterable_dataset()
    assert.same({{b = "x"}}, rows(set:select_columns("b")))
    assert.same({{b = "x"}}, rows(set:remove_columns {"a"}))
    local renamed = set:rename_column("a", "labels")
    assert.same({{labels = 1, b = "x"}}, rows(renamed))
    assert.same({"labels", "b"}, renamed.column_names)
    assert.equal("int64", renamed:features().labels)
    check.raises("rename_column: there is a column 'b' already", function() set:rename_column("a", "b") end)
    check.raises("select_columns: there is no column 'c' (there are: a, b)", function() set:select_columns {"c"} end)
    assert.is_nil(set:map(function() return {c = 1} end).column_names)
  end)

  it("return tensors when they are requested", function()
    local set = data.Table {n = {3}, x = {0.25}, f = {true}, s = {"x"}}:to_iterable_dataset()
    local row = set:with_format("accelhost"):iter()()
    assert.same({"int64", "float32", "bool", "x"}, {row.n.dtype, row.x.dtype, row.f.dtype, row.s})
    assert.equal(3, set:with_format("accelhost"):with_format(nil):iter()().n)
    check.raises("with_format: type: expected 'accelhost' or nil, got 'torch'", function() set:with_format("torch") end)
  end)
end)

describe("A shuffled stream", function()
  it("yields every row once, in an order of the seed and the epoch", function()
    local set = table_of(500):shuffle {seed = 3, buffer_size = 50}
    local first = rows(set, "n")
    assert.same(first, rows(set, "n"))
    assert.same(first, rows(table_of(500):shuffle {seed = 3, buffer_size = 50}, "n"))
    set:set_epoch(1)
    local second = rows(set, "n")
    assert.are_not.same(first, second)
    assert.are_not.same(first, rows(table_of(500):shuffle {seed = 4, buffer_size = 50}, "n"))
    for _, list in ipairs {first, second} do
      for at, n in ipairs(list) do assert.is_true(n < at + 50) end -- a row is drawn only from the buffer
      assert.same(numbers(0, 499), sorted(list))
    end
  end)

  it("draws as often from each place of its buffer", function()
    local counts = {}
    for epoch = 0, 1999 do
      local set = table_of(6):shuffle {seed = 1, buffer_size = 4}
      set:set_epoch(epoch)
      local first = set:iter()().n
      counts[first + 1] = (counts[first + 1] or 0) + 1
    end
    assert.equal(4, #counts)
    for _, count in ipairs(counts) do check.near(500, accelhost.tensor(count), 80) end
  end)

  it("walks parts in a drawn order, but not those that `take` and `skip` have counted", function()
    local seen = {}
    for seed = 0, 20 do seen[rows(table_of(6, 3):shuffle {seed = seed, buffer_size = 1}, "n")[1]] = true end
    assert.same({[0] = true, [2] = true, [4] = true}, seen)
    for seed = 0, 20 do
      assert.same({0, 1, 2}, sorted(rows(table_of(6, 3):take(3):shuffle {seed = seed}, "n")))
    end
  end)

  it("draws its seed from the global generator when it has none", function()
    accelhost.manual_seed(5)
    local first = rows(table_of(50):shuffle(), "n")
    accelhost.manual_seed(5)
    assert.same(first, rows(table_of(50):shuffle(), "n"))
    assert.are_not.same(first, rows(table_of(50):shuffle(), "n"))
    check.raises("shuffle: pass a seed or a generator, not both", function()
      table_of(5):shuffle {seed = 1, generator = accelhost.Generator()}
    end)
  end)
end)

-- New streams of several kinds, each with n from 0 to 99.
local function kinds_of_streams(dir)
  for i = 0, 3 do write(("%s/%d.csv"):format(dir, i), csv_of(25 * i, 25 * i + 24)) end
  local files = {dir .. "/0.csv", dir .. "/1.csv", dir .. "/2.csv", dir .. "/3.csv"}
  local function file() return stream("csv", write(dir .. "/all.csv", csv_of(0, 99))) end
  local function batches(set)
    return set:map(function(batch) return {n = batch.n, twice = batch.n * 2} end, {batched = true, batch_size = 7})
  end
  return {
    ["a file"] = file,
    ["four files"] = function() return stream("csv", files) end,
    ["a table"] = function() return table_of(100) end,
    ["a table in parts"] = function() return table_of(100, 7) end,
    ["a mapped file"] = function()
      return file():map(function(row, i) return {at = i, n = row.n} end, {with_indices = true})
    end,
    ["batches"] = function() return batches(file()) end,
    ["a shuffled file"] = function() return file():shuffle {seed = 5, buffer_size = 13} end,
    ["shuffled files"] = function() return batches(stream("csv", files):shuffle {seed = 6, buffer_size = 30}) end,
    ["take and skip"] = function()
      return file():filter(function(row) return row.n ~= 50 end):skip(5):take(60):rename_column("text", "words")
    end,
    ["filtered batches"] = function() return batches(file():shuffle {seed = 9}):filter(even) end,
  }
end

describe("Shares of a stream", function()
  it("have each row once together, whatever the stream is made of", function()
    folder.with(function(dir)
      for name, make in pairs(kinds_of_streams(dir)) do
        local whole = sorted(rows(make(), "n"))
        for _, count in ipairs {1, 2, 3, 4, 5} do
          local all, most, least = {}, 0, 1000
          for index = 0, count - 1 do
            local mine = rows(make():shard(count, index), "n")
            for _, n in ipairs(mine) do all[#all + 1] = n end
            most, least = math.max(most, #mine), math.min(least, #mine)
          end
          assert.same(whole, sorted(all), name .. " in " .. count)
          if not name:find "filtered" then assert.is_true(most - least <= 1 or name:find "parts" ~= nil, name) end
        end
        local again = {}
        for index = 0, 5 do
          for _, n in ipairs(rows(make():shard(2, index % 2):shard(3, math.floor(index / 2)), "n")) do
            again[#again + 1] = n
          end
        end
        assert.same(whole, sorted(again), name .. " in shares of shares")
      end
      check.raises("shard: index: expected 0 to 1, got 2", function() table_of(4):shard(2, 2) end)
    end)
  end)

  it("number rows as the whole stream does", function()
    for index = 0, 2 do
      local set = table_of(20):map(function(row, i) return {at = i, n = row.n} end,
        {with_indices = true}):shard(3, index)
      for row in set:iter() do assert.equal(row.n, row.at) end
      set = table_of(20):map(function(batch, at) return {at = at, n = batch.n} end,
        {with_indices = true, batched = true, batch_size = 3}):shard(3, index)
      for row in set:iter() do assert.equal(row.n, row.at) end
    end
  end)

  it("are whole files where there are enough of them", function()
    folder.with(function(dir)
      local set = kinds_of_streams(dir)["four files"]()
      local mine = rows(set:shard(2, 1), "n")
      assert.same({25, 49, 75, 99}, {mine[1], mine[25], mine[26], mine[50]})
    end)
  end)
end)

describe("A stream's state", function()
  it("leads to the rows that were left, wherever it is saved, also through a file", function()
    folder.with(function(dir)
      for name, make in pairs(kinds_of_streams(dir)) do
        local set = make()
        set:set_epoch(2)
        local whole = rows(set, "n")
        for _, taken in ipairs {0, 1, 6, 7, 8, 24, 25, 26, #whole - 1, #whole} do
          set = make()
          set:set_epoch(2)
          local following = set:iter()
          for _ = 1, taken do following() end
          accelhost.save(set:state_dict(), dir .. "/state.safetensors")
          local again = make()
          again:load_state_dict(accelhost.load(dir .. "/state.safetensors"))
          local rest = rows(again, "n")
          assert.same({unpack(whole, taken + 1)}, rest, ("%s after %d"):format(name, taken))
          assert.same({unpack(whole, taken + 2)}, (function()
            following()
            local list = {}
            for row in following do list[#list + 1] = row.n end
            return list
          end)(), "taking a state changes nothing")
        end
      end
      check.raises("load_state_dict: expected a stream's state", function() table_of(3):load_state_dict(3) end)
    end)
  end)

  it("of one that has not begun is its beginning, and skipping rows is as reading them", function()
    folder.with(function(dir)
      local set = table_of(4)
      set:load_state_dict(table_of(4):state_dict())
      assert.same({0, 1, 2, 3}, rows(set, "n"))
      for name, make in pairs(kinds_of_streams(dir)) do
        local whole = rows(make(), "n")
        for _, count in ipairs {0, 1, 13, 30, 1000} do
          local following, skip = make():iter()
          assert.equal(math.min(count, #whole), skip(count), name)
          local row = following()
          assert.equal(whole[count + 1], row and row.n, name)
        end
      end
    end)
  end)
end)

describe("A loader of a stream", function()
  it("makes batches with the columns' dtypes, with and without workers", function()
    folder.with(function(dir)
      local set = stream("csv", write(dir .. "/rows.csv", "n,x,text\n1,0.5,a\n2,3,b\n3,4,c\n4,5,d\n"))
      for workers = 0, 2 do
        local seen = {}
        for batch in data.DataLoader(set, {batch_size = 2, num_workers = workers}) do
          assert.same({"int64", "float64", 2}, {batch.n.dtype, batch.x.dtype, #batch.text})
          for _, n in ipairs(batch.n:tolist()) do seen[#seen + 1] = n end
        end
        assert.same({1, 2, 3, 4}, sorted(seen))
      end
      local batch = data.DataLoader(set:map(function(row) return {y = row.n} end, {features = {y = "float32"}}),
        {batch_size = 2}):batches()()
      assert.equal("float32", batch.y.dtype)
      set = stream("json", write(dir .. "/rows.json", '{"n": 1}\n{"n": null}\n'))
      check.raises("DataLoader: row 2 of a batch has nothing in column 'n'", function()
        data.DataLoader(set, {batch_size = 2}):batches()()
      end)
    end)
  end)

  it("passes the epoch to workers, those included that exist already", function()
    local set = table_of(40):shuffle {seed = 1}
    local orders = {}
    local loader = data.DataLoader(set, {batch_size = 40, num_workers = 1, persistent_workers = true})
    for epoch = 0, 1 do
      loader:set_epoch(epoch)
      for batch in loader do orders[epoch + 1] = batch.n:tolist() end
    end
    set:set_epoch(1)
    assert.same(rows(set, "n"), orders[2])
    assert.are_not.same(orders[1], orders[2])
  end)

  it("yields each process its share, in batches of one length", function()
    folder.with(function(dir)
      for name, make in pairs(kinds_of_streams(dir)) do
        local whole = sorted(rows(make(), "n"))
        for workers = 0, 2, 2 do
          local all = {}
          for rank = 0, 2 do
            local loader = data.DataLoader(make(), {batch_size = 4, num_workers = workers}):shard {
              rank = rank, size = 3, agree = function(has) return has end,
            }
            for batch in loader do
              for _, n in ipairs(batch.n:narrow(0, 0, loader.valid_length):tolist()) do all[#all + 1] = n end
            end
          end
          assert.same(whole, sorted(all), name)
        end
      end
    end)
  end)

  it("resumes in the middle of a pass", function()
    folder.with(function(dir)
      for name, make in pairs(kinds_of_streams(dir)) do
        local function loader() return data.DataLoader(make(), {batch_size = 3}) end
        local whole, rest, saved = {}, {}, nil
        local first = loader()
        for batch in first do
          whole[#whole + 1] = batch.n:tolist()
          if #whole == 4 then saved = first:state_dict() end
        end
        local again = loader()
        again:load_state_dict(saved)
        for batch in again do rest[#rest + 1] = batch.n:tolist() end
        assert.same({unpack(whole, 5)}, rest, name)
      end
    end)
  end)
end)

describe("A table's rows", function()
  local set = data.Table({n = {1, 2, 3}, x = {0.5, 1, 2}, text = {"a", "bb", "ccc"}}, {"n", "x", "text"})

  it("are tensors with the format accelhost", function()
    local made = set:with_format("accelhost")
    local row = made[1]
    assert.same({"int64", "float32", "bb", 0}, {row.n.dtype, row.x.dtype, row.text, row.n:dim()})
    assert.equal("float32", made:select({2, 0}):rows({0}).x.dtype)
    row = set:with_format("accelhost", "n")[0]
    assert.same({nil, nil}, {row.x, row.text})
    row = set:with_format("accelhost", {columns = {"n"}, output_all_columns = true})[0]
    assert.same({0.5, "a"}, {row.x, row.text})
    assert.equal(1, made:with_format(nil)[0].n)
    local own = set:select({0, 1})
    own:set_format("accelhost")
    assert.equal("int64", own[0].n.dtype)
    own:reset_format()
    assert.equal(1, own[0].n)
    check.raises("with_format: there is no column 'y'", function() set:with_format("accelhost", {"y"}) end)
    check.raises("with_format: columns are for type 'accelhost'", function() set:with_format(nil, {"n"}) end)
    check.raises("unknown type 'torch'", function() set:with_format("torch") end)
  end)

  it("are made by a function when they are asked for", function()
    local calls = 0
    local made = set:with_transform(function(batch)
      calls = calls + 1
      local lengths = {}
      for i, text in ipairs(batch.text) do lengths[i] = #text end
      return {length = lengths, n = batch.n * 10}
    end)
    assert.equal(0, calls)
    assert.same({n = 20, length = 2}, made[1])
    assert.same({n = 30, length = 3}, made:select({2})[0])
    for workers = 0, 1 do
      local batch = data.DataLoader(made, {batch_size = 3, num_workers = workers}):batches()()
      assert.same({{10, 20, 30}, {1, 2, 3}}, {batch.n:tolist(), batch.length:tolist()})
    end
    assert.equal(3, calls) -- two rows, one batch; the other in the worker
    assert.same({n = 10, x = 0.5, text = "a"}, set:with_transform(function(batch) return {n = batch.n * 10} end,
      {columns = "n", output_all_columns = true})[0])
    assert.same({1, 2, 3}, rows(set:with_transform(function(batch)
      return {m = batch.n}
    end):to_iterable_dataset(), "m"))
    local own = set:select({0})
    own:set_transform(function(batch) return {n = batch.n + 1} end)
    assert.same({n = 2}, own[0])
    own:set_transform(nil)
    assert.equal("a", own[0].text)
    check.raises("set_transform: transform: column 'n': expected 1 values, one for each row, got 2", function()
      return set:with_transform(function() return {n = {1, 2}} end)[0]
    end)
    check.raises("set_transform: transform: expected a table of columns by name, got nil", function()
      return set:with_transform(function() end)[0]
    end)
  end)

  it("are a stream in parts", function()
    assert.same({0, 1, 2, 3, 4}, rows(table_of(5, 3), "n"))
    assert.same({2, 3}, rows(table_of(5, 3):shard(3, 1), "n"))
    check.raises("to_iterable_dataset: num_shards: expected at most 3, one for each row, got 4",
      function() set:to_iterable_dataset(4) end)
  end)
end)
