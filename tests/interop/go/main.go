// What a Go program does with RocketMQ's client: each kind of send, a push consumer that fails one
// message once, a pull of each queue, order by key, delays, and transactions. It prints one object of
// JSON, by scenario, without what differs by chance.
//
//	usage: clients NAME_SERVER BROKER_NAME
//	       clients failover NAME_SERVERS TOPIC GROUP
//
// The topics Sent, Ordered, Delayed and Halves exist. The second one is of failover.go.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	if os.Args[1] == "failover" {
		rlog.SetLogLevel("fatal")
		failover(strings.Split(os.Args[2], ";"), os.Args[3], os.Args[4])
	}
	rlog.SetLogLevel("error")
	names := primitive.NamesrvAddr{os.Args[1]}
	seen := map[string]interface{}{}
	var lock sync.Mutex
	var wait sync.WaitGroup
	for _, play := range []func(primitive.NamesrvAddr) map[string]interface{}{
		sent, orderly, delayed, transactions,
	} {
		play := play
		wait.Add(1)
		go func() {
			defer wait.Done()
			found := play(names)
			lock.Lock()
			defer lock.Unlock()
			for scenario, what := range found {
				seen[scenario] = what
			}
		}()
	}
	wait.Wait()
	check(json.NewEncoder(os.Stdout).Encode(seen))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func message(topic string, number int) *primitive.Message {
	found := primitive.NewMessage(topic, []byte(fmt.Sprintf("body %d", number)))
	found.WithTag("tag")
	found.WithKeys([]string{fmt.Sprintf("key%02d", number)})
	found.WithProperty("number", fmt.Sprint(number))
	return found
}
