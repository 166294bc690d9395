-- The launcher on a machine whose processors are busy.
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local terminal = require "spec.support.terminal"

describe("accelhost launch", function()
  it("reports on a terminal that other jobs leave fewer processors than ranks", function()
    if os.execute "taskset -c 0 true 2> /dev/null" ~= 0 then return pending "needs processor 0" end
    local words = {"taskset", "-c", "0", run.path, "launch", "--num_processes", "2"}
    local function shown(option)
      local all = {unpack(words)}
      all[#all + 1] = option
      all[#all + 1], all[#all + 2] = "-e", "print 'up'"
      local at = terminal.open(all)
      local text = at:wait "%[r0%-r1%] up\n"
      assert.equal(0, at:close())
      return text
    end
    folder.with(function(path)
      -- A job that ends when a file appears.
      local script = "io.open(arg[1] .. '/up', 'w'):close() local last = os.time() + 60 " ..
        "repeat until io.open(arg[1] .. '/stop') or os.time() > last"
      local start = run.program {"bash", "-c", [["$0" launch -e "$1" "$2" > /dev/null 2>&1 &
        for i in $(seq 1200); do [ -e "$2/up" ] && exit 0; sleep 0.05; done; exit 1]], run.path, script, path}
      run.succeeds(start)
      local busy, quiet = shown(), shown "--quiet"
      local all = {unpack(words)}
      all[#all + 1], all[#all + 2] = "-e", "print 'up'"
      local batch = run.program(all)
      io.open(path .. "/stop", "w"):close()
      assert.matches("^accelhost launch: %d+ ranks? of your other jobs %(pid %d+; accelhost top%) and 2 of this one " ..
        "share 1 processor\n", busy)
      assert.equal("[r0-r1] up\n", quiet)
      assert.same({"[r0-r1] up\n", ""}, {batch.stdout, batch.stderr})
    end)
  end)
end)
