local datasets = require "spec.support.datasets"
local files = require "spec.support.files"
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
  it("lists the available data sets", function()
    local result = run.host {"data", "--help"}
    run.succeeds(result)
    assert.matches("mnist .*60,000", result.stdout)
    assert.matches("fashion_mnist", result.stdout)
  end)

  it("exits with code 2 for arguments that it does not understand", function()
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

  it("reports that a download failed", function()
    local dir = new_folder()
    local result = run.host {"data", "mnist", "--dir", dir, "--mirror", "file://" .. dir .. "/none"}
    assert.equal(1, result.code)
    assert.matches("download failed %(curl ended with 37", result.stderr)
    assert.equal("", files_in(dir))
    os.execute("rmdir " .. dir)
  end)

  -- fn(dir, fetch): fetch(words) runs `accelhost data mnist` with a curl that stores its arguments in dir/words and the
  -- state of the file that it is to write in dir/output.
  local function with_curl(fn)
    local dir = new_folder()
    os.execute("mkdir -p " .. dir .. "/bin")
    local file = assert(io.open(dir .. "/bin/curl", "w"))
    file:write(([[#!/bin/sh
      printf '%%s\n' "$@" >> %s/words
      while [ "$1" != --output ]; do shift; done
      stat -c '%%A %%s %%N' "$2" >> %s/output
      exit 6]]):format(dir, dir))
    file:close()
    os.execute("chmod +x " .. dir .. "/bin/curl")
    fn(dir, function(words)
      local all = {"data", "mnist", "--dir", dir .. "/set"}
      for _, word in ipairs(words) do all[#all + 1] = word end
      return run.host(all, {env = {PATH = dir .. "/bin:" .. os.getenv "PATH"}})
    end)
    os.execute("rm -r " .. dir)
  end

  local read = files.read

  it("limits curl to https and http, also for redirections, and to a size", function()
    with_curl(function(dir, fetch)
      fetch {}
      local words = read(dir .. "/words")
      assert.equal(2, select(2, words:gsub("%-%-proto\n=https,http\n%-%-proto%-redir\n=https,http\n", "")))
      assert.equal(2, select(2, words:gsub("%-%-max%-filesize\n67108864\n", "")))
      os.remove(dir .. "/words")
      fetch {"--mirror", "file:///none"}
      assert.matches("%-%-proto\n=file\n%-%-proto%-redir\n=https,http\n", read(dir .. "/words"))
    end)
  end)

  it("has curl write to a file that exists already, with a name that is different each time", function()
    with_curl(function(dir, fetch)
      fetch {}
      local first, second = read(dir .. "/output"):match "^(.-)\n(.-)\n$"
      assert.matches("^%-rw%S+ 0 '" .. dir .. "/set/train%-images%-idx3%-ubyte.gz%.part%-%w%w%w%w%w%w'$", first)
      assert.are_not.equal(first, second)
      assert.equal("", files_in(dir .. "/set"))
    end)
  end)

  it("names the files to copy where there is no network", function()
    with_curl(function(dir, fetch)
      local result = fetch {}
      assert.equal(1, result.code)
      local advice = ("\naccelhost data: without a network, copy these files into %s/set: train-images-idx3-ubyte.gz, "
        .. "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz\n"):format(dir)
      assert.equal(advice, result.stderr:sub(-#advice))
    end)
  end)

  it("reports that curl is missing", function()
    local dir = new_folder()
    os.execute("mkdir " .. dir)
    local result = run.program({"env", "PATH=" .. dir, run.path, "data", "mnist", "--dir", dir .. "/x"})
    assert.equal(1, result.code)
    assert.matches("the curl program is not installed", result.stderr)
    os.execute("rm -r " .. dir)
  end)

  datasets.it("fetches, checks, and keeps files that are correct already", "mnist", function(source)
    if not io.open(source .. "/t10k-labels-idx1-ubyte.gz") then return end
    local dir = new_folder()
    local words = {"data", "mnist", "--dir", dir .. "/a/b", "--mirror", "file://" .. source .. "/"}
    if source:sub(1, 1) ~= "/" then words[#words] = "file://" .. os.getenv("PWD") .. "/" .. source end
    local result = run.host(words)
    run.succeeds(result)
    assert.equal(4, select(2, result.stdout:gsub("fetched, sum is right", "")))
    os.execute("echo wrong > " .. dir .. "/a/b/t10k-labels-idx1-ubyte.gz")
    result = run.host(words)
    run.succeeds(result)
    assert.equal(3, select(2, result.stdout:gsub("here already", "")))
    assert.matches("t10k%-labels%-idx1%-ubyte.gz: not the known file", result.stdout)
    os.execute("rm -r " .. dir)
  end)
end)
