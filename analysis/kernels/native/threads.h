// Threads that live as long as one call: made in some ten microseconds, where waking those of a pool through Python takes a
// hundred or more.

#pragma once

#include <system_error>
#include <thread>
#include <vector>

// Call `run(0)` here and `run(1)` to `run(threads - 1)` beside it; a thread that cannot be made is done here as well.
template <class Run> void together(long threads, const Run &run) {
    std::vector<std::thread> others;
    long made = 1;
    try {
        for (; made < threads; made++) others.emplace_back(run, made);
    } catch (const std::system_error &) {
    }
    run(0);
    for (long number = made; number < threads; number++) run(number);
    for (auto &other : others) other.join();
}
