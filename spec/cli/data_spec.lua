local datasets = require "spec.support.datasets"
local run = require "spec.support.run"

local function new_folder()
  local dir = os.tmpname()
  os.remove(dir)
  return dir
end

local function files_in(dir)
  local pipe = io.popen("ls -A " .. dir .. " 2>/dev/null")
  local text = pipe:read("*a")
  pipe:close()
  return text
end

describe("accelhost data", function()
  it("lists what it can fetch", function()
    local result = run.host {"data", "--help"}
    assert.equal(0, result.code)
    assert.matches("mnist .*60,000", result.stdout)
    assert.matches("fashion_mnist", result.stdout)
  end)

  it("ends with 2 for what it does not understand", function()
    for words, text in pairs {
      [{"data"}] = "expected the name of a data set",
      [{"data", "minst"}] = "unknown data set 'minst'",
      [{"data", "mnist", "--dri", "x"}] = "unknown option '%-%-dri' %(did you mean '%-%-dir'%?%)",
      [{"data", "mnist", "--dir"}] = "%-%-dir expects a value",
      [{"data", "mnist", "more"}] = "unexpected argument 'more'",
    } do
      local result = run.host(words)
      assert.equal(2, result.code)
      assert.matches(text, result.stderr)
    end
  end)

  it("leaves nothing behind when the bytes are not the known ones", function()
    local mirror, dir = new_folder(), new_folder()
    os.execute("mkdir " .. mirror .. " && echo wrong > " .. mirror .. "/train-images-idx3-ubyte.gz")
    local result = run.host {"data", "mnist", "--dir", dir, "--mirror", "file://" .. mirror}
    assert.equal(1, result.code)
    assert.matches("train%-images%-idx3%-ubyte.gz: expected the SHA%-256 sum 440fcabf%x+, got %x+", result.stderr)
    assert.equal("", files_in(dir))
    os.execute("rm -r " .. mirror .. " " .. dir)
  end)

  it("says that a download failed", function()
    local dir = new_folder()
    local result = run.host {"data", "mnist", "--dir", dir, "--mirror", "file://" .. dir .. "/none"}
    assert.equal(1, result.code)
    assert.matches("download failed %(curl ended with 37", result.stderr)
    assert.equal("", files_in(dir))
    os.execute("rmdir " .. dir)
  end)

  it("says that curl is missing", function()
    local dir = new_folder()
    os.execute("mkdir " .. dir)
    local result = run.program({"env", "PATH=" .. dir, run.path, "data", "mnist", "--dir", dir .. "/x"})
    assert.equal(1, result.code)
    assert.matches("the curl program is not installed", result.stderr)
    os.execute("rm -r " .. dir)
  end)

  datasets.it("fetches, checks, and keeps what is right already", "mnist", function(source)
    if not io.open(source .. "/t10k-labels-idx1-ubyte.gz") then return end
    local dir = new_folder()
    local words = {"data", "mnist", "--dir", dir .. "/a/b", "--mirror", "file://" .. source .. "/"}
    if source:sub(1, 1) ~= "/" then words[#words] = "file://" .. os.getenv("PWD") .. "/" .. source end
    local result = run.host(words)
    assert.equal(0, result.code)
    assert.equal(4, select(2, result.stdout:gsub("fetched, sum is right", "")))
    os.execute("echo wrong > " .. dir .. "/a/b/t10k-labels-idx1-ubyte.gz")
    result = run.host(words)
    assert.equal(0, result.code)
    assert.equal(3, select(2, result.stdout:gsub("here already", "")))
    assert.matches("t10k%-labels%-idx1%-ubyte.gz: not the known file", result.stdout)
    os.execute("rm -r " .. dir)
  end)
end)
