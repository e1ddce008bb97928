/* striped MILLISECONDS [SERVER]: without a server this end receives. */
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "striped.h"

enum { PORT = 18600 };

static int accepted(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(listener >= 0);
	CHECK_EQ(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
	CHECK_EQ(listen(listener, 1), 0);
	int connection = accept(listener, NULL, NULL);
	CHECK(connection >= 0);
	return connection;
}

static int connected(const char *server)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	CHECK_EQ(inet_pton(AF_INET, server, &address.sin_addr), 1);
	int connection = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connection >= 0);
	CHECK_EQ(connect(connection, (struct sockaddr *)&address, sizeof address), 0);
	return connection;
}

int main(int argc, char **argv)
{
	struct rail rails[MAX_RAILS] = {{0}};
	CHECK(argc >= 2);
	unsigned milliseconds = (unsigned)atoi(argv[1]);
	limit_time(milliseconds / 1000 + 60);
	int count = open_rails(rails);
	if (argc > 2)
		send_all(connected(argv[2]), rails, count, milliseconds);
	else
		receive_all(accepted(), rails, count);
	return 0;
}
