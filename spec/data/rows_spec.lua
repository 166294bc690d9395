-- Files of rows: CSV, TSV and JSON lines, whole and as streams.
local accelhost = require "accelhost"
local datasets = require "spec.support.datasets"
local folder = require "spec.support.folder"
local data = accelhost.data

-- fn(path) with a file of this content.
local function with_file(content, fn, name)
  folder.with(function(dir)
    local path = dir .. "/" .. (name or "rows.csv")
    local file = assert(io.open(path, "wb"))
    file:write(content)
    file:close()
    fn(path)
  end)
end

local function all(set)
  local rows = {}
  for i = 0, #set - 1 do rows[i + 1] = set:get(i) end
  return rows
end

describe("CSV", function()
  it("reads fields, quoted and not, by the header's names", function()
    local text = '\239\187\191label,first,"sec""ond"\r\n1,"a, b","c\nd"\r\n\r\n0,,""\n2, x ,say ""no""\n3,"q""",é'
    with_file(text, function(path)
      local set = data.CSV(path)
      assert.same({"label", "first", 'sec"ond'}, set.names)
      assert.same({
        {label = "1", first = "a, b", ['sec"ond'] = "c\nd"}, {label = "0", first = "", ['sec"ond'] = ""},
        {label = "2", first = " x ", ['sec"ond'] = 'say ""no""'}, {label = "3", first = 'q"', ['sec"ond'] = "é"},
      }, all(set))
    end)
  end)

  it("takes names of your own, numbers for names, other separators and quotes", function()
    with_file("1;'a;b'\n2;c", function(path)
      assert.same({{"1", "a;b"}, {"2", "c"}}, all(data.CSV(path, {header = false, delimiter = ";", quote = "'"})))
      assert.error_matches(function() data.CSV(path, {header = {"x", "y"}, delimiter = ";", quote = false}) end,
        "row 1 %(line 1%): 3 fields, expected 2")
      assert.same({{x = "1", y = "a;b"}, {x = "2", y = "c"}},
        all(data.CSV(path, {header = {"x", "y"}, delimiter = ";", quote = "'"})))
    end)
    with_file('text\tlabel\nsay "hi\t1\n', function(path)
      assert.same({{text = 'say "hi', label = "1"}}, all(data.CSV(path)))
    end, "rows.tsv")
  end)

  it("makes values of the types that are asked for", function()
    with_file("a,b,c,d\n1,0.5,true,x\n-3,2,0,y\n", function(path)
      local set = data.CSV(path, {types = {a = "int64", b = "float32", c = "bool"}})
      local batch = data.DataLoader(set, {batch_size = 2}):batches()()
      assert.same({1, -3}, batch.a:tolist())
      assert.equal("int64", batch.a.dtype)
      assert.same({0.5, 2}, batch.b:tolist())
      assert.equal("float32", batch.b.dtype)
      assert.same({true, false}, batch.c:tolist())
      assert.same({"x", "y"}, batch.d)
      assert.equal("float32", (data.DataLoader(set, {sampler = {1}}):batches()()).b.dtype) -- 2 stays a float
      assert.same({0.5, 2}, set:column("b"):tolist())
      assert.equal("int64", set:column("a").dtype)
      assert.same({"x", "y"}, set:column "d")
      assert.error_matches(function() set:column "e" end, "has no column 'e'")
    end)
  end)

  it("names the row and the line of what is wrong", function()
    local function problem(text, pattern, options)
      with_file(text, function(path)
        assert.error_matches(function() data.CSV(path, options) end, pattern)
        assert.error_matches(function()
          for _ in data.DataLoader(data.CSVStream(path, options)) do accelhost.zeros(1) end
        end, pattern)
      end)
    end
    problem('a,b\n1,"x\ny"\n2\n', "rows.csv', row 2 %(line 4%): 1 fields, expected 2")
    problem('a,b\n1,"x\n', "row 2: line 2: a quote is not closed")
    problem('a,b\n1,"x"y\n', "row 2: line 2: text after a closing quote")
    problem("a,b\n1,2\n\nx,3\n", "row 2 %(line 4%): column 'a': expected a whole number of at most 2^53, got 'x'",
      {types = {a = "int64"}})
    problem("a,b\n0x10,2\n", "column 'a': expected a number, got '0x10'", {types = {a = "float64"}})
    problem("a,b\n,2\n", "column 'a': expected true, false, 1 or 0, got ''", {types = {a = "bool"}})
    problem("a,a\n", "two columns are named 'a'")
    problem("a,b\n", "has no column 'c' %(it has: a, b%)", {types = {c = "int64"}})
    problem("a,b\n", "unknown type 'int' %(known: bool", {types = {a = "int"}})
    problem("a,b\n", "expected one byte, got '::'", {delimiter = "::"})
    problem("a,b\n", "must differ", {delimiter = '"'})
    assert.error_matches(function() data.CSV "/nowhere.csv" end, "'/nowhere.csv': cannot read: No such file")
  end)

  it("is empty where there is nothing", function()
    for _, text in ipairs {"", "\n\n", "a,b\n", "\239\187\191"} do
      with_file(text, function(path) assert.equal(0, #data.CSV(path)) end)
    end
  end)

  datasets.it("reads SST-2 as it is", "sst2", function(dir)
    local set = data.CSV(dir .. "/test.tsv", {types = {label = "int64"}})
    assert.equal(872, #set)
    assert.equal(444, set:column("label"):sum():item())
  end)

  datasets.it("reads MRPC's quotes", "mrpc", function(dir)
    local set = data.CSV(dir .. "/train.csv")
    assert.equal(6, #set)
    assert.same({"label", "sentence1", "sentence2"}, set.names)
  end)
end)

describe("CSVStream", function()
  local lines = {"n"}
  for i = 0, 10 do lines[i + 2] = tostring(i) end
  local text = table.concat(lines, "\n")

  it("gives the rows of a walk, whole or shared by workers", function()
    with_file(text, function(path)
      local stream = data.CSVStream(path, {types = {n = "int64"}})
      for _, workers in ipairs {0, 1, 3} do
        local seen = {}
        for batch in data.DataLoader(stream, {batch_size = 2, num_workers = workers}) do
          for _, n in ipairs(batch.n:tolist()) do seen[#seen + 1] = n end
        end
        table.sort(seen)
        assert.same({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, seen)
      end
    end)
  end)
end)

describe("JSONLines", function()
  local text = '{"x": 1, "y": "a"}\n\n[1, 2]\r\n{"x": 2, "y": "b"}'

  it("gives the value of each line", function()
    with_file(text, function(path)
      local set = data.JSONLines(path)
      assert.same({{x = 1, y = "a"}, {1, 2}, {x = 2, y = "b"}}, all(set))
      local batch = data.DataLoader(set, {batch_size = 2, sampler = {0, 2}}):batches()()
      assert.same({1, 2}, batch.x:tolist())
      assert.same({"a", "b"}, batch.y)
      local seen = {}
      for sample in data.JSONLinesStream(path):iter() do seen[#seen + 1] = sample end
      assert.same(all(set), seen)
    end)
  end)

  it("names the line that is damaged", function()
    with_file('{"x": 1}\n\n{"x": }\n', function(path)
      local set = data.JSONLines(path)
      assert.error_matches(function() set:get(1) end, "rows.csv', line 3: ")
      assert.error_matches(function() set:get(2) end, "index 2 is out of range %(0 to 1%)")
      assert.error_matches(function()
        for _ in data.JSONLinesStream(path):iter() do accelhost.zeros(1) end
      end, "JSONLinesStream: '.*', line 3: ")
      assert.error_matches(function() data.JSONLines(path .. "x") end, "JSONLines: cannot read")
    end)
  end)
end)
