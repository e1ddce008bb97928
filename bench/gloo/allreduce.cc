/* How long an allreduce of Gloo takes: sums of floats, in place, over TCP or over ibverbs.
 *
 *   g++ -O2 -o allreduce_gloo allreduce.cc -lgloo -libverbs
 *   ./allreduce_gloo --transport tcp --device eth0 --rank 0 --size 2 --store FOLDER -b 4096 -n 1000 -w 100
 *
 *   --transport  tcp, or ibverbs
 *   --device     an interface for TCP, a device for ibverbs
 *   --store      a folder that all ranks see, empty at the start: by its files they find each other
 *   -b BYTES     bytes of the vector, -n operations that are timed, -w operations before them
 *
 * Rank 0 prints one JSON object:
 *
 *   {"bytes":4096,"us":81.3,"busbw_gbs":0.05,"ranks":2,"wrong":0}
 *
 * "us" is the mean of one operation on rank 0, "wrong" counts rank 0's elements that hold another value than
 * the sum, after one more operation that is not timed.
 *
 * The algorithm is recursive halving and doubling, which works on both transports; Gloo's newer functions
 * need unbound buffers, which its ibverbs transport has not. */

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>

/* Small whole numbers: their sums are exact in whatever order they are added. */
static float value(size_t i, int rank)
{
    return static_cast<float>((i % 7 + 1) * static_cast<size_t>(rank + 1));
}

static std::shared_ptr<gloo::transport::Device> open_device(const std::string &transport,
                                                            const std::string &name)
{
    if (transport == "tcp") {
        gloo::transport::tcp::attr attributes;
        attributes.iface = name;
        return gloo::transport::tcp::CreateDevice(attributes);
    }
    if (transport == "ibverbs")
        return gloo::transport::ibverbs::CreateDevice({name, 1, 0});
    throw std::runtime_error("--transport is tcp or ibverbs");
}

static int run(std::map<std::string, std::string> options)
{
    auto number = [&](const char *name) { return std::stoull(options[name]); };
    int rank = static_cast<int>(number("--rank")), size = static_cast<int>(number("--size"));
    size_t count = number("-b") / sizeof(float), timed = number("-n"), warm_up = number("-w");
    if (count == 0 || timed == 0 || size < 2)
        throw std::runtime_error("-b is 4 at least, -n 1 and --size 2");

    auto device = open_device(options["--transport"], options["--device"]);
    gloo::rendezvous::FileStore store(options["--store"]);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device);

    /* Zeros stay zeros, however often they are added. */
    std::vector<float> vector(count);
    gloo::AllreduceHalvingDoubling<float> allreduce(context, {vector.data()}, static_cast<int>(count));
    gloo::BarrierAllToAll barrier(context);
    for (size_t i = 0; i < warm_up; i++)
        allreduce.run();
    barrier.run();
    auto started = std::chrono::steady_clock::now();
    for (size_t i = 0; i < timed; i++)
        allreduce.run();
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;

    for (size_t i = 0; i < count; i++)
        vector[i] = value(i, rank);
    allreduce.run();
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += vector[i] != value(i, 0) * static_cast<float>(size * (size + 1) / 2);
    barrier.run();
    if (rank == 0) {
        double each = seconds.count() / static_cast<double>(timed);
        double bytes = static_cast<double>(count * sizeof(float));
        std::printf("{\"program\":\"allreduce_gloo\",\"bytes\":%.0f,\"us\":%.3f,\"busbw_gbs\":%.6f,"
                    "\"ranks\":%d,\"wrong\":%zu}\n",
                    bytes, each * 1e6, bytes / each / 1e9 * 2 * (size - 1) / size, size, wrong);
    }
    if (wrong)
        std::fprintf(stderr, "allreduce_gloo: %zu sums are wrong\n", wrong);
    std::fflush(nullptr);
    /* The destructors of the ibverbs transport deregister memory with requests outstanding, and may wait
     * for ever: nothing is left for them to do. */
    _exit(wrong != 0);
}

int main(int argc, char **argv)
{
    std::map<std::string, std::string> options;
    for (int i = 1; i + 1 < argc; i += 2)
        options[argv[i]] = argv[i + 1];
    try {
        return run(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "allreduce_gloo: %s\n", error.what());
        std::fflush(nullptr);
        _exit(1);
    }
}
